//! Flags of `windlass serve` for the ports of dialects: one for each key that has the name of its dialect.

use super::keys::Keys;
use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches};
use windlass_dialects::ALL;
use windlass_dialects::settings::Key;

/// Addresses by key, as given on the command line.
#[derive(Clone, Debug, Default)]
pub(crate) struct PortFlags(Vec<(&'static str, String)>);

impl PortFlags {
    pub(crate) fn given(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.0.iter().cloned()
    }
}

/// Help text from the key: `Address of … [default: …]`.
fn help(key: &Key) -> String {
    let text = key.help.split(" (also").next().unwrap_or_default();
    let (first, rest) = text.split_at_checked(1).unwrap_or_default();
    format!("{}{rest} [default: {}]", first.to_uppercase(), key.default)
}

impl Args for PortFlags {
    fn augment_args(command: Command) -> Command {
        let flag =
            |key: &'static Key| Arg::new(key.name).long(key.name).value_name("ADDR|off").help(help(key));
        command.args(Keys(ALL).ports().map(flag))
    }

    fn augment_args_for_update(command: Command) -> Command {
        PortFlags::augment_args(command)
    }
}

impl FromArgMatches for PortFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<PortFlags, Error> {
        let given = |key: &'static Key| Some((key.name, matches.get_one::<String>(key.name)?.clone()));
        Ok(PortFlags(Keys(ALL).ports().filter_map(given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = PortFlags::from_arg_matches(matches)?;
        Ok(())
    }
}
