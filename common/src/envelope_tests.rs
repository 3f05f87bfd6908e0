//! The wire form, there and back, and on hostile input.

use super::*;

/// As the submit script would store it.
fn stored(sealed: &Sealed) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u8(VERSION);
    out.put_u32(7);
    for n in [1_796_038_247_128_123.0_f64, 0.0, 0.0] {
        out.put_f64(n);
    }
    out.put_u16(u16::try_from(sealed.header.len()).unwrap());
    out.put_slice(&sealed.header);
    out.put_slice(&sealed.body);
    out.freeze()
}

#[test]
fn a_task_comes_back_as_it_was() {
    let mut task =
        NewTask::new("gpt4".parse().unwrap(), vec![0, 255, 10, 0xC1]).tenant("ac:me {x}").order_key("file\n1").key("k");
    task.cost = u32::MAX;
    task.meta.timeout_ms = u64::MAX;
    let sealed = seal(&task).unwrap();
    let back = open(task.id.clone(), &stored(&sealed)).unwrap();
    assert_eq!((back.queue, back.agent, back.tenant), (task.queue, task.agent, task.tenant));
    assert_eq!((back.order_key, back.key, back.cost), (task.order_key, task.key, task.cost));
    assert_eq!((back.meta, back.payload, back.seq_us), (task.meta, task.payload, 1_796_038_247_128_123));
    assert!(!back.payload_apart);
}

#[test]
fn a_large_payload_rides_apart() {
    let task = NewTask::new("a".parse().unwrap(), vec![7; INLINE_BYTES_MAX + 1]);
    let sealed = seal(&task).unwrap();
    assert_eq!(sealed.apart, task.payload);
    assert!(sealed.header.len() + sealed.body.len() < 128);
    assert!(open(task.id, &stored(&sealed)).unwrap().payload_apart);
}

#[test]
fn fingerprints_tell_content_apart() {
    let keyed =
        |payload: &'static str| seal(&NewTask::new("a".parse().unwrap(), payload).key("k")).unwrap().fingerprint;
    assert_eq!(keyed("x"), keyed("x"));
    assert_ne!(keyed("x"), keyed("y"));
}

#[test]
fn every_truncation_and_every_flipped_byte_is_an_answer_not_a_panic() {
    let whole = stored(&seal(&NewTask::new("agent".parse().unwrap(), "payload").key("k")).unwrap());
    let id = TaskId::generate();
    let header = whole.len() - "payload".len();
    for end in 0..header {
        assert!(open(id.clone(), &whole.slice(..end)).is_err(), "cut at {end}");
    }
    for at in 0..whole.len() {
        let mut bytes = whole.to_vec();
        bytes[at] ^= 0xFF;
        let _ = open(id.clone(), &Bytes::from(bytes));
    }
}

#[test]
fn a_nesting_bomb_in_the_meta_part_is_refused() {
    let mut out = BytesMut::from(&stored(&seal(&NewTask::new("a".parse().unwrap(), "")).unwrap())[..]);
    out.truncate(out.len() - 3);
    let bomb: Vec<u8> = [0x81, 0xA1, b'x'].into_iter().chain([0x91; 4000]).chain([0x90]).collect();
    out.put_u16(u16::try_from(bomb.len()).unwrap());
    out.put_slice(&bomb);
    assert!(matches!(open(TaskId::generate(), &out.freeze()), Err(Error::Meta(_))));
}
