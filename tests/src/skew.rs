//! Processes whose wall clock is wrong, on a machine whose clock is right.
//!
//! A library that is loaded before all others (`LD_PRELOAD`) shifts what the C library says of the time of day. The monotonic clock
//! stays as it is, as on a machine whose clock was set wrong. It is made by the C compiler that a build of Tidemill needs anyway.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What shifts the clock by `OFFSET` seconds.
const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>
int clock_gettime(clockid_t clock, struct timespec *at) {
    static int (*asked)(clockid_t, struct timespec *);
    if (!asked) asked = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int answer = asked(clock, at);
    if (answer == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) at->tv_sec += OFFSET;
    return answer;
}
int gettimeofday(struct timeval *at, void *zone) {
    (void)zone;
    struct timespec now;
    int answer = clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return answer;
}
time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"#;

/// Makes the library for a clock that is wrong by so many seconds, in this folder; set `LD_PRELOAD` to its path.
///
/// # Panics
/// When the C compiler cannot.
#[must_use]
pub fn library(folder: &Path, seconds: i64) -> PathBuf {
    let (source, library) = (folder.join("skew.c"), folder.join(format!("skew{seconds}.so")));
    std::fs::write(&source, SOURCE).unwrap_or_else(|e| panic!("{}: {e}", source.display()));
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-O1", &format!("-DOFFSET=({seconds}L)"), "-o"]).arg(&library).arg(&source);
    let made = compile.arg("-ldl").output().unwrap_or_else(|e| panic!("a C compiler (cc) is needed: {e}"));
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    library
}
