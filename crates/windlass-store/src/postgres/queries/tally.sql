INSERT INTO {s}.tallies (lane, state, n) SELECT * FROM unnest($1::int[], $2::smallint[], $3::bigint[])
