//! The small files beside a served drive: `clock`, `stats` and `control`.

use super::drive::{Drive, LATEST_NS};
use super::mode::Mode;
use fragmend_served::server::Control;
use rustix::io::Errno;
use std::io;
use std::time::Duration;

/// The commands of the file `control`, as it shows them itself.
pub const COMMANDS: &str = "\
quit                  ends serving, as Ctrl-C does
reset-stats           counts begin anew; the clock goes on
fill                  as if all of the drive had been written in order, without time; its data stays
rest MILLISECONDS     virtual time passes with no request in flight (accounting)
settle MICROSECONDS   how long no request must arrive before virtual time advances (accounting)
";

/// The longest rest and settling time, which no load needs.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
const LONGEST_SETTLE: Duration = Duration::from_secs(1);

/// The virtual time in nanoseconds.
pub struct Clock(pub Drive);

/// The statistics.
pub struct StatsFile(pub Drive);

/// Commands; the second field is called for `quit`.
pub struct Commands(pub Drive, pub Box<dyn Fn() + Send + Sync>);

fn read_only() -> io::Result<()> {
    Err(Errno::PERM.into())
}

impl Control for Clock {
    fn read(&self) -> io::Result<Vec<u8>> {
        Ok(format!("{}\n", self.0.clock_ns()).into_bytes())
    }

    fn write(&self, _: &[u8]) -> io::Result<()> {
        read_only()
    }
}

impl Control for StatsFile {
    fn read(&self) -> io::Result<Vec<u8>> {
        let mut text = serde_json::to_vec(&self.0.stats())?;
        text.push(b'\n');
        Ok(text)
    }

    fn write(&self, _: &[u8]) -> io::Result<()> {
        read_only()
    }
}

impl Control for Commands {
    fn read(&self) -> io::Result<Vec<u8>> {
        Ok(COMMANDS.as_bytes().to_vec())
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let text = std::str::from_utf8(bytes).map_err(|_| Errno::INVAL)?;
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let number = |text: &str| text.parse::<u64>().map_err(|_| io::Error::from(Errno::INVAL));
        match words[..] {
            ["quit"] => (self.1)(),
            ["reset-stats"] => self.0.state().table.reset(),
            ["fill"] => self.fill()?,
            ["rest", time] => self.rest(Duration::from_millis(number(time)?))?,
            ["settle", time] => self.settle(Duration::from_micros(number(time)?))?,
            _ => return Err(Errno::INVAL.into()),
        }
        Ok(())
    }
}

impl Commands {
    fn fill(&self) -> io::Result<()> {
        let mut state = self.0.state();
        if state.table.in_flight() > 0 {
            return Err(Errno::BUSY.into());
        }
        state.table.fill().map_err(|_| Errno::IO.into())
    }

    fn rest(&self, time: Duration) -> io::Result<()> {
        self.is_accounting()?;
        let mut state = self.0.state();
        if state.table.in_flight() > 0 {
            return Err(Errno::BUSY.into());
        }
        if time > LONGEST {
            return Err(Errno::INVAL.into());
        }
        let until = state.table.now().saturating_add(time.as_nanos() as u64);
        if until > LATEST_NS {
            return Err(Errno::INVAL.into());
        }
        state.table.advance(until);
        Ok(())
    }

    fn settle(&self, time: Duration) -> io::Result<()> {
        self.is_accounting()?;
        if time > LONGEST_SETTLE {
            return Err(Errno::INVAL.into());
        }
        self.0.state().settle = time;
        Ok(())
    }

    fn is_accounting(&self) -> io::Result<()> {
        if self.0.inner().mode == Mode::Accounting { Ok(()) } else { Err(Errno::INVAL.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::data::Data;
    use super::super::model::Model;
    use super::*;
    use crate::presets;

    #[test]
    fn virtual_time_has_an_end_which_is_refused_and_not_overrun() {
        let setup = presets::named("nvme-b").expect("a preset");
        let data = Data::create(&std::env::temp_dir(), 1 << 20).unwrap();
        let model = Model::new(setup.device());
        let drive = Drive::new(model, 32, data, 1 << 20, Mode::Accounting);
        let commands = Commands(drive.clone(), Box::new(|| {}));
        let rest = || commands.write(b"rest 86400000\n");
        // 213504 days are longer than a u64 of nanoseconds.
        let refused = (0..213_505).find_map(|day| Some((day, rest().err()?)));
        let (days, error) = refused.expect("the end of time");
        assert_eq!(error.raw_os_error(), Some(Errno::INVAL.raw_os_error()));
        assert!(days > 50_000 && drive.clock_ns() <= LATEST_NS, "{days} days");
        // Shorter ones are still possible.
        commands.write(b"rest 1\n").unwrap();
    }
}
