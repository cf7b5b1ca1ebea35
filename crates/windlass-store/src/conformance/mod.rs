//! What every store has to do: passing this is what being a store means.
