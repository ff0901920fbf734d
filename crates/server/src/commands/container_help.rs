//! `<CONTAINER> HELP`, from the rows of the subcommands.

use super::{CommandSpec, Row, of, subcommands};

/// The lines of a container's help: how to use it, then each subcommand with what it does.
pub(crate) fn help(container: Row) -> Vec<String> {
    let name = of(container).name.to_ascii_uppercase();
    let mut lines =
        vec![format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")];
    let mut rows: Vec<&CommandSpec> = subcommands(container).map(|(_, spec)| spec).collect();
    rows.sort_by_key(|spec| (spec.name.ends_with("|help"), spec.name));
    for spec in rows {
        let sub = spec.name.split_once('|').map_or("", |(_, sub)| sub).to_ascii_uppercase();
        lines.push(format!("{sub} {}", spec.syntax).trim_end().to_owned());
        lines.push(format!("    {}", spec.summary));
    }
    lines
}
