-- Actions of operators and admins, bounded by number and age.
-- {s} stands for the schema.
CREATE TABLE {s}.audit (
    id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at     bigint NOT NULL,  -- ms
    tenant text   NOT NULL,
    who    text   NOT NULL,
    role   text   NOT NULL,
    action text   NOT NULL,
    target text   NOT NULL,
    detail text   NOT NULL
);
