SELECT id, at, tenant, who, role, action, target, detail FROM {s}.audit
WHERE id < $1 AND ($2::text IS NULL OR tenant = $2) AND ($3::text IS NULL OR who = $3)
  AND ($4::text IS NULL OR action = $4 OR starts_with(action, $4 || '.')) AND ($5::text IS NULL OR target = $5)
ORDER BY id DESC LIMIT $6
