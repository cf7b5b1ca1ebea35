DELETE FROM {s}.audit
WHERE id <= (SELECT max(id) FROM {s}.audit) - $1
   OR (at < $2 AND id IN (SELECT id FROM {s}.audit ORDER BY id LIMIT $3))
