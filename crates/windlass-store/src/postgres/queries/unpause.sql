DELETE FROM {s}.paused WHERE tenant = $1::text AND queue = $2::text
