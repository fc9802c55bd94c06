//! Whether a shell in a terminal of ours has become another program, as by `exec fish` in its startup file. The hook is gone then.
//!
//! The shell's process is looked at when there is new output, before the output is shown. A program writes nothing before it has
//! replaced another one, so the message comes before its first prompt.

use std::os::unix::ffi::OsStrExt as _;

use super::startup::Startup;
use crate::os::processes;

/// A shell, as the leader of its terminal has started it.
pub(super) struct Shell {
    leader: u32,
    /// Its process, once it is known.
    process: Option<u32>,
    /// The end of its command line: a wrapper of the shell has the same.
    arguments: Vec<u8>,
    /// Its variables: it removes them before it runs anything of the user's.
    variables: Vec<Vec<u8>>,
    is_told: bool,
}

impl Shell {
    pub(super) fn new(leader: u32, startup: &Startup) -> Shell {
        let arguments = startup.words.iter().skip(1).flat_map(|word| [word.as_bytes(), b"\0"].concat()).collect();
        let variable = |(name, value): &(&str, std::ffi::OsString)| [name.as_bytes(), b"=", value.as_bytes()].concat();
        let variables = startup.variables.iter().map(variable).collect();
        Shell { leader, process: None, arguments, variables, is_told: false }
    }

    /// The name of the program that it has become, once.
    pub(super) fn replaced_by(&mut self) -> Option<String> {
        if self.is_told {
            return None;
        }
        let process = self.process.or_else(|| processes::child(self.leader))?;
        self.process = Some(process);
        // The environment first: if the shell becomes another program in between, the line has that one's name.
        let has_variables = self.has_variables(process);
        // Empty once it has ended.
        let line = processes::arguments(process).filter(|line| !line.is_empty())?;
        if line.ends_with(&self.arguments) && has_variables {
            return None;
        }
        self.is_told = true;
        let program = line.split(|byte| *byte == 0).next().unwrap_or_default();
        let name = program.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        Some(String::from_utf8_lossy(name).trim_start_matches('-').to_owned())
    }

    fn has_variables(&self, process: u32) -> bool {
        if self.variables.is_empty() {
            return true;
        }
        let Some(environment) = processes::environment(process).filter(|environment| !environment.is_empty()) else {
            return true;
        };
        let there: Vec<&[u8]> = environment.split(|byte| *byte == 0).collect();
        self.variables.iter().all(|variable| there.contains(&variable.as_slice()))
    }
}
