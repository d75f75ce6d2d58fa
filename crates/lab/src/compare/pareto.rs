//! The Pareto front of gain against programmed bytes among the remedies on one image, and why a remedy is not on it.
//!
//! What brings as much as no remedy, for as few bytes, is none: only a remedy that does something is on the front.

use super::remedies::{Act, Moves, Remedy};
use super::report::{Beaten, Measured};
use std::cmp::Ordering;

/// A remedy with what was measured of it.
pub type Point<'a> = (Remedy, &'a Measured);

/// Whether one gains no less for no more programmed bytes than another, and more or for fewer. None beats what is just as good.
fn beats((remedy, one): Point<'_>, (other, of_other): Point<'_>) -> bool {
    let gain = one.gain_percent.total_cmp(&of_other.gain_percent);
    let bytes = one.programmed_bytes.cmp(&of_other.programmed_bytes);
    let is_better = (gain, bytes) != (Ordering::Equal, Ordering::Equal);
    let is_none = remedy.act() == Act::Nothing && other.act() != Act::Nothing;
    gain.is_ge() && bytes.is_le() && (is_better || is_none)
}

/// The one with the highest gain of those that beat a remedy, with the reason; `None` if it is on the front.
pub fn beaten(of: Point<'_>, all: &[Point<'_>]) -> Option<Beaten> {
    let better = all.iter().filter(|other| beats(**other, of));
    let is_none = |remedy: Remedy| remedy.act() == Act::Nothing;
    let best = better.max_by(|a, b| {
        let gain = a.1.gain_percent.total_cmp(&b.1.gain_percent);
        gain.then(is_none(a.0).cmp(&is_none(b.0)))
    })?;
    Some(Beaten { by: best.0.name().to_owned(), why: why(of, *best) })
}

/// Why one beats another, by what each does and what was measured.
fn why((loser, lost): Point<'_>, (winner, won): Point<'_>) -> String {
    let mib = |bytes: i64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    let moved = |measured: &Measured| mib(measured.moved_bytes as i64);
    let (gains, programs) = (
        format!("{:+.1} % against {:+.1} %", won.gain_percent, lost.gain_percent),
        format!("{} programmed against {}", mib(won.programmed_bytes), mib(lost.programmed_bytes)),
    );
    let how = match winner.act() {
        Act::Nothing if lost.moved_bytes == 0 => "it finds nothing to move".to_owned(),
        Act::Nothing => "moving this brings nothing".to_owned(),
        Act::Place(_) => "it moves nothing: the load's own writes go to the right dies".to_owned(),
        Act::Janusd { joins: true, .. } | Act::Plan(_, Moves::ByRemap) => {
            format!("it moves {} by changing the drive's mapping", moved(won))
        }
        Act::Janusd { .. } => {
            format!("it moves {} that are read often, within the drive", moved(won))
        }
        Act::Plan(_, Moves::InDevice) => format!("the drive copies {} itself", moved(won)),
        Act::Clean => format!("the cleaner copies {}", moved(won)),
        Act::Plan(_, Moves::ByHost) => match won.moved_bytes.cmp(&lost.moved_bytes) {
            Ordering::Less => format!("it moves {} and not {}", moved(won), moved(lost)),
            Ordering::Equal => {
                let beside = |of: &Measured| mib(of.programmed_bytes - of.host_written_bytes);
                format!(
                    "it moves as much in another order, and the drive programs {} beside what the host writes and not {}",
                    beside(won),
                    beside(lost)
                )
            }
            Ordering::Greater => {
                format!("it moves {} and not {}, and fewer are programmed", moved(won), moved(lost))
            }
        },
    };
    let belief = lost.foreseen_percent.filter(|_| loser.act() != Act::Nothing);
    let belief = belief.map_or(String::new(), |foreseen| {
        format!("; {} foresaw {foreseen:+.1} % by its profile of the drive", loser.name())
    });
    format!("{how} ({gains}, {programs}{belief})")
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A row with this gain and these bytes.
    pub fn measured(gain_percent: f64, programmed_bytes: i64) -> Measured {
        Measured {
            read_before: 100.0,
            read_after: 100.0 + gain_percent,
            gain_percent,
            foreseen_percent: None,
            moved_bytes: programmed_bytes.unsigned_abs(),
            host_written_bytes: programmed_bytes,
            programmed_bytes,
            erases_per_block: None,
            seconds: 1.0,
            slowdown_percent: None,
            power_cuts: None,
            on_front: false,
            beaten: None,
        }
    }

    #[test]
    fn the_front_is_what_no_other_one_beats() {
        let points = [
            (Remedy::Nothing, measured(0.0, 0)),
            (Remedy::WholeFile, measured(20.0, 100)),
            (Remedy::Fragpicker, measured(19.0, 30)),
            (Remedy::Bypass, measured(18.0, 40)),
            (Remedy::JanusdP, measured(-1.0, 10)),
            (Remedy::Gain, measured(20.0, 100)),
            (Remedy::GainRemap, measured(0.0, 0)),
        ];
        let all: Vec<Point<'_>> = points.iter().map(|(remedy, one)| (*remedy, one)).collect();
        let beaten: Vec<Option<String>> =
            all.iter().map(|one| beaten(*one, &all).map(|beaten| beaten.by)).collect();
        // What is as good is no better, unless it is as good as nothing.
        let nothing = Some("nothing");
        let expected = [None, None, None, Some("fragpicker"), nothing, None, nothing];
        assert_eq!(beaten, expected.map(|name| name.map(str::to_owned)));
    }

    #[test]
    fn where_as_much_is_moved_garbage_collection_is_the_difference() {
        let of = |programmed: i64| Measured {
            moved_bytes: 10 << 20,
            host_written_bytes: 11 << 20,
            ..measured(10.0, programmed << 20)
        };
        let (gain, bypass) = (of(14), of(12));
        let all = [(Remedy::Gain, &gain), (Remedy::Bypass, &bypass)];
        let why = beaten(all[0], &all).expect("it is beaten").why;
        let expected = "it moves as much in another order, and the drive programs 1.0 MiB beside what the host writes and not 3.0 MiB";
        assert!(why.starts_with(expected), "{why}");
    }

    #[test]
    fn the_reason_is_what_was_measured() {
        let (gain, picked) = (measured(10.0, 50 << 20), measured(12.0, 30 << 20));
        let gain = Measured { foreseen_percent: Some(40.0), ..gain };
        let all = [(Remedy::Gain, &gain), (Remedy::Fragpicker, &picked)];
        let beaten = beaten(all[0], &all).expect("it is beaten");
        assert_eq!(
            beaten.why,
            "it moves 30.0 MiB and not 50.0 MiB (+12.0 % against +10.0 %, 30.0 MiB programmed against 50.0 MiB; \
             gain foresaw +40.0 % by its profile of the drive)"
        );
    }
}
