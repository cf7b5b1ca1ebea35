-- When the next lease ends or keep time is over, after $1.
SELECT least(
    (SELECT min(at) FROM {s}.jobs WHERE state = 1 AND at > $1::bigint AND at < 9223372036854775807),
    (SELECT min(at) FROM {s}.jobs WHERE state = 3 AND at > $1::bigint),
    (SELECT min(deadline) FROM {s}.jobs_done WHERE deadline > $1::bigint)
)
