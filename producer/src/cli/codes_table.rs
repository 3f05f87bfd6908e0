//! What each code means and what to do: see [`super::codes`].

use super::codes::{Code, Entry, entry};

/// All codes.
pub(crate) const ALL: &[Entry] = &[
    entry(
        Code::NoTask,
        "The task is not one",
        "A name, a number, a time or the payload's size is out of its range. Nothing was sent.",
        "The message names what and its range. `producer submit --help` has all of them.",
    ),
    entry(
        Code::QueueFull,
        "The queue is full",
        "The queue holds as many waiting tasks of this priority as this producer may add up to (`submit.waiting_max`; low ones up to \
         four fifths of it). Nothing was taken in.",
        "Send it again after the time in the message. If this is usual: run more workers (`producer queue` shows what waits), or \
         raise the bound.",
    ),
    entry(
        Code::MemoryFull,
        "Redis has no memory left",
        "Its `maxmemory` is reached. Nothing new is taken in; what is there goes on and makes room as it ends.",
        "Send it again later; give Redis more memory; keep fewer results (`--result none`, a shorter lifetime); purge what is dead: \
         `producer dead purge`.",
    ),
    entry(
        Code::TooManyQueues,
        "There are as many queues as there may be",
        "A deployment has at most 256 queues, and this would be one more.",
        "Use one that exists. Tenants and order keys tell tasks apart without a queue each.",
    ),
    entry(
        Code::KeyConflict,
        "The idempotency key is another task's",
        "A task with this key is in, and has another agent, queue or payload. Nothing was taken in.",
        "Find out which of the two is meant: `producer status ID` shows the one that is in. To take its place while it waits: \
         `--on-key replace`.",
    ),
    entry(
        Code::Duplicate,
        "The task was in already",
        "Its key or id is known, with the same content, and `--fail-on-duplicate` says that this is a failure.",
        "Nothing, if once was meant. Without the flag the answer is the id of the first.",
    ),
    entry(
        Code::Unknown,
        "It is not known whether the task was taken in",
        "It was sent and no reply came in time. It may be in, or not.",
        "Send the same command again with the `--id` of the message, or with the same `--key`: if it is in, that makes no second one.",
    ),
    entry(
        Code::NotTaken,
        "The server did not take the task in",
        "The server could not read it, or did not let us hand it in: this build and the server do not agree.",
        "Run `producer doctor`. See that the Redis user may run scripts, and that all programs are of one version.",
    ),
    entry(
        Code::NeverFits,
        "The task could never pass a gate",
        "Its cost is above the limit of a rate, or its weight above the slots that there are, so that it would wait for ever. Nothing was \
         taken in.",
        "Hand in less at once, or raise the limit: `producer book show` has the rules, the message names the gate.",
    ),
    entry(
        Code::Arguments,
        "The arguments are not right",
        "A flag, a value or a verb is not known, is missing, or does not go with another.",
        "The message says which. Every verb has examples: `producer VERB --help`.",
    ),
    entry(
        Code::NoId,
        "That is no id of a task",
        "Ids have 1 to 64 letters, digits, `_` or `-`. Or none came from stdin, where some were to come.",
        "See what is in the pipe. `producer list --output ndjson | jq -r .id` prints ids, one a line.",
    ),
    entry(
        Code::Payload,
        "The payload is not right",
        "It is not JSON, or it is larger than `submit.payload_bytes_max`.",
        "Quote it for the shell, or give a file (`--payload-file`). With `--raw` it may be any bytes. Of large data, hand in where it \
         lies and not the data.",
    ),
    entry(
        Code::CannotRead,
        "A file cannot be read",
        "It is not there, it is a directory, or this user may not read it.",
        "See to the path in the message.",
    ),
    entry(
        Code::Configuration,
        "The configuration has mistakes",
        "A key is not known, a value is not of its type or range, or a file of it cannot be read. All mistakes are told at once, each \
         with the place that made it.",
        "`producer --help` says where configuration comes from; the defaults file says every key and what it means.",
    ),
    entry(
        Code::Terminal,
        "Data is to come from a terminal",
        "The arguments say that data comes from stdin, which is a terminal, where nobody would know what to type.",
        "Pipe it in, or name a file.",
    ),
    entry(
        Code::BookMistakes,
        "The book has mistakes",
        "Some of its rules are not rules. Nothing was put in force.",
        "All mistakes are in the message. `producer book show-compiled FILE` checks it without a server.",
    ),
    entry(
        Code::NeedsYes,
        "Nobody can be asked",
        "This would change all tasks that a filter matches, and no person is at the terminal to say yes.",
        "Look at what it would do with `--dry-run`, then say `--yes`.",
    ),
    entry(
        Code::NoChoice,
        "No tasks are named",
        "The verb wants ids, or a filter such as `--queue` or `--agent`, and not both. An empty filter is not taken for all.",
        "Name them, or say `--all`.",
    ),
    entry(
        Code::RedisSettings,
        "The address of Redis is not one",
        "`--redis`, `TIDEMILL__REDIS__URL` or `redis.url` cannot be read.",
        "Write `redis://user:password@host:port/database`, `rediss://…` for TLS, `redis+unix:///path/to/socket`, or, of sentinels, \
         `redis-sentinel://user:password@host:port?sentinelServiceName=NAME&node=host:port`.",
    ),
    entry(
        Code::TooMany,
        "More tasks match than are done at once",
        "A command remembers the ids that it does, at most 1,000,000. Nothing was done.",
        "Narrow the filter, or do it in parts with `--limit`.",
    ),
    entry(
        Code::Declined,
        "Nothing was done, as you said",
        "The question whether to do it to all that match was answered with something else than `y`.",
        "Look at what matches with `--dry-run`; say `--yes` where nobody is to be asked.",
    ),
    entry(
        Code::ScheduleMistakes,
        "The schedule has mistakes",
        "Its pattern, its zone or its task is not one, or the pattern never comes. Of a file, all mistakes are told, and none of it was \
         put in force.",
        "`producer schedule next --cron PATTERN --zone ZONE` tries a pattern without a server; docs/schedules.md has the forms.",
    ),
    entry(
        Code::NoTerminal,
        "There is no terminal to draw on",
        "`producer top` draws on a terminal, and its output or input is none.",
        "`producer queue --watch` shows the same counts line by line; with `--output ndjson`, for programs.",
    ),
    entry(
        Code::Unreachable,
        "Redis cannot be reached",
        "There is no connection: nothing listens there, the name is not known, or a firewall is between.",
        "See that it runs and that the address is right: `producer doctor --redis URL`. To try things out: `worker dev`.",
    ),
    entry(
        Code::NotLetIn,
        "Redis does not let us in",
        "The user or the password is wrong, or that user may not run what Tidemill needs.",
        "See to the user and password in the URL; characters such as `@` and `/` are written as `%40` and `%2F`.",
    ),
    entry(
        Code::NoAnswer,
        "Redis does not answer",
        "The connection broke, or the answer did not come in time. What was asked may have been done.",
        "Ask again: every command is safe to send twice. `producer doctor` tells more.",
    ),
    entry(
        Code::RedisRefused,
        "Redis refused a command",
        "It answered with an error that asking again does not cure.",
        "The message has Redis' own words. See that its user may run scripts and that its data is Tidemill's.",
    ),
    entry(
        Code::StrangeAnswer,
        "Redis answered in a form that is not known",
        "The scripts and this build do not agree, or a key was changed by hand.",
        "See that all programs are of one version; then tell us, with the message.",
    ),
    entry(
        Code::Unsuitable,
        "Tidemill does not run on this server",
        "It is older than Redis 7.0 or Valkey 7.2, evicts keys when its memory is full, or holds data of another layout.",
        "The message says which. Set `maxmemory-policy` to `noeviction`; run the build that wrote the data, or migrate.",
    ),
    entry(
        Code::NotNow,
        "Redis does nothing at present",
        "It says so itself, to every try: it is a replica (`READONLY`), loads its data (`LOADING`), runs somebody's script (`BUSY`), \
         cannot save (`MISCONF`), has too few replicas (`NOREPLICAS`) or lost its primary (`MASTERDOWN`). What was asked was not \
         done, for certain.",
        "Ask again a little later. If it stays so, its own words in the message say what it lacks; a replica that stays one is the \
         wrong address: with Sentinel, give the sentinels' (`redis-sentinel://…`).",
    ),
    entry(
        Code::NothingKnown,
        "Nothing is known of the task",
        "It was never taken in here, or it ended and its outcome has been forgotten (two minutes after its end, or its result's \
         lifetime; 90 days when it is dead).",
        "See to the id and to the server: `producer doctor` shows which one is asked.",
    ),
    entry(
        Code::NotInState,
        "The task is not in a state for that",
        "Only what waits can be moved, only what is scheduled can be run now, only what is dead can be replayed, purged or skipped. Or \
         somebody was quicker.",
        "`producer explain ID` says where it is.",
    ),
    entry(
        Code::EndedBadly,
        "The task ended badly",
        "The task waited for is dead, cancelled or expired.",
        "`producer explain ID` says why, and what can be done.",
    ),
    entry(
        Code::WaitOver,
        "The wait is over, and the task is not",
        "It had not ended in the time given. It goes on.",
        "`producer explain ID` says what holds it back. Wait on with `producer wait ID`.",
    ),
    entry(
        Code::Partly,
        "Of many tasks, not all were done",
        "Some were done, or taken in; others were refused, are not in a state for it, or are not known.",
        "`--output ndjson` has an answer for each. The same command again does only what is left.",
    ),
    entry(
        Code::BookNewer,
        "Another book is in force",
        "The book in force has a higher revision, or the same with other content; or it came in while yours was made from another.",
        "See what is in force (`producer book show`, `producer book diff FILE`), and give yours a higher revision.",
    ),
    entry(
        Code::NoPayload,
        "There is no payload to show or to change",
        "The task has ended and only its outcome is kept, it cannot be read, or its payload is not JSON. Or payload or result cannot be \
         encoded or decoded with the keys and stores of this configuration: the message says which is missing.",
        "Of the dead, the payload is kept: `producer dead show ID --raw` prints it as it is. For keys and stores, set [payloads] as \
         where the task comes from.",
    ),
    entry(
        Code::TooManyKept,
        "There are as many of these as there may be",
        "A deployment has at most 256 pauses, 256 numbers of tasks at once, and 1,000 schedules.",
        "End or delete one that is not needed any more: `producer resume`, `producer concurrency reset`, `producer schedule delete`.",
    ),
    entry(
        Code::NoSchedule,
        "There is no such schedule",
        "No schedule has this name.",
        "`producer schedule list` shows those that there are.",
    ),
    entry(
        Code::CannotWrite,
        "The output cannot be written",
        "The disk is full, or whoever was to read it has gone.",
        "See to where the output goes. What was done is done.",
    ),
    entry(
        Code::Interrupted,
        "Interrupted",
        "Ctrl-C or SIGTERM came before all was done. What was done is done.",
        "The message says how to go on.",
    ),
    entry(
        Code::CannotStart,
        "The program cannot start",
        "The system does not give it threads or signals. Of a worker also: an agent cannot be made here, an address is taken, or it broke off.",
        "The message says which. See to the limits of this machine (`ulimit -a`), and to the paths and addresses of its configuration.",
    ),
];
