//! Charts as SVG that is part of the page: lines through points, bars, and marks with a name. Each has its figures as a
//! table below it. Series differ by dashes and by the shape of their points as well as by colour.

use super::table::{Cell, Table};
use fragmend_report::{Unit, human, human_beside};
use maud::{Markup, html};

/// Size of a chart, in units of its own; it is drawn as wide as the page permits.
const SIZE: (f64, f64) = (640.0, 260.0);
/// What is left, right, above and below of the points.
const LEFT: f64 = 78.0;
const RIGHT: f64 = 34.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 46.0;
/// The most series that can be told apart.
pub const MOST_SERIES: usize = 6;
const TICKS: usize = 5;

/// An axis.
pub struct Axis {
    /// What it is of.
    pub title: String,
    /// The unit of its values.
    pub unit: Unit,
    /// Whether equal ratios are equally far apart; else it begins at zero.
    pub is_logarithmic: bool,
}

/// Points with a name.
pub struct Series {
    /// What they are.
    pub name: String,
    /// Places, in the order in which a line goes through them.
    pub points: Vec<(f64, f64)>,
    /// Whether a line does.
    pub has_line: bool,
}

/// A chart of series.
pub struct Chart {
    /// What it shows: its accessible name.
    pub title: String,
    /// Below it.
    pub x: Axis,
    /// Beside it.
    pub y: Axis,
    /// What is drawn, [`MOST_SERIES`] at most.
    pub series: Vec<Series>,
}

/// From values to places.
struct Scale {
    is_logarithmic: bool,
    least: f64,
    most: f64,
    from: f64,
    to: f64,
}

impl Scale {
    fn of(axis: &Axis, values: impl Iterator<Item = f64> + Clone, from: f64, to: f64) -> Self {
        let most = values.clone().fold(0.0, f64::max);
        let positive = values.filter(|value| *value > 0.0);
        let (least, most) = if axis.is_logarithmic {
            let least = positive.fold(f64::INFINITY, f64::min);
            if least < most { (least, most) } else { (most / 2.0, most * 2.0) }
        } else {
            (0.0, most)
        };
        let most = if most > least { most } else { least + 1.0 };
        Self { is_logarithmic: axis.is_logarithmic, least, most, from, to }
    }

    fn at(&self, value: f64) -> f64 {
        let part = if self.is_logarithmic {
            (value.max(self.least) / self.least).ln() / (self.most / self.least).ln()
        } else {
            (value - self.least) / (self.most - self.least)
        };
        self.from + part.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// Values at equal distances.
    fn ticks(&self) -> impl Iterator<Item = f64> + '_ {
        (0..=TICKS).map(|n| {
            let part = n as f64 / TICKS as f64;
            if self.is_logarithmic {
                self.least * (self.most / self.least).powf(part)
            } else {
                self.least + part * (self.most - self.least)
            }
        })
    }
}

impl Chart {
    /// Marks it up with its figures below it; nothing if it has no point.
    pub fn draw(&self) -> Option<Markup> {
        let points = || self.series.iter().flat_map(|series| &series.points);
        points().next()?;
        let x = Scale::of(&self.x, points().map(|p| p.0), LEFT, SIZE.0 - RIGHT);
        let y = Scale::of(&self.y, points().map(|p| p.1), SIZE.1 - BOTTOM, TOP);
        Some(html! {
            figure.chart {
                svg viewBox=(format!("0 0 {} {}", SIZE.0, SIZE.1)) role="img" aria-label=(self.title) {
                    (self.axes(&x, &y))
                    @for (number, series) in self.series.iter().take(MOST_SERIES).enumerate() {
                        g class={ "series s" (number) } {
                            @if series.has_line && series.points.len() > 1 { path d=(line(series, &x, &y)) {} }
                            path.point d=(marks(series, number, &x, &y)) {}
                        }
                    }
                }
                figcaption { (self.title) (self.key()) }
                details { summary { "The figures of this chart" } (self.figures()) }
            }
        })
    }

    fn axes(&self, x: &Scale, y: &Scale) -> Markup {
        let (bottom, right) = (SIZE.1 - BOTTOM, SIZE.0 - RIGHT);
        html! {
            @for tick in y.ticks() {
                line.grid x1=(LEFT) x2=(right) y1=(place(y.at(tick))) y2=(place(y.at(tick))) {}
                text x=(LEFT - 6.0) y=(place(y.at(tick) + 4.0)) text-anchor="end" { (human_beside(tick, y.most, self.y.unit)) }
            }
            @for tick in x.ticks() {
                line.grid x1=(place(x.at(tick))) x2=(place(x.at(tick))) y1=(TOP) y2=(bottom) {}
                text x=(place(x.at(tick))) y=(bottom + 16.0) text-anchor="middle" { (human_beside(tick, x.most, self.x.unit)) }
            }
            text x=((LEFT + right) / 2.0) y=(SIZE.1 - 8.0) text-anchor="middle" { (self.x.title) }
            text x="14" y=((TOP + bottom) / 2.0) text-anchor="middle"
                transform=(format!("rotate(-90 14 {})", (TOP + bottom) / 2.0)) { (self.y.title) }
        }
    }

    /// What the series are.
    fn key(&self) -> Markup {
        html! {
            @if self.series.len() > 1 {
                ul.key {
                    @for (number, series) in self.series.iter().take(MOST_SERIES).enumerate() {
                        li {
                            svg viewBox="0 0 28 12" aria-hidden="true" {
                                g class={ "series s" (number) } {
                                    @if series.has_line { path d="M1 6H27" {} }
                                    path.point d=(shape(number, 14.0, 6.0)) {}
                                }
                            }
                            " " (series.name)
                        }
                    }
                }
            }
        }
    }

    fn figures(&self) -> Markup {
        let mut table = Table::new(&self.title);
        table.column("series", "").number(&self.x.title, "").number(&self.y.title, "");
        for series in self.series.iter().take(MOST_SERIES) {
            for (x, y) in &series.points {
                let number = |value: f64, unit| Cell::number(value, human(value, unit));
                let (x, y) = (number(*x, self.x.unit), number(*y, self.y.unit));
                table.row([Cell::text(&series.name), x, y]);
            }
        }
        table.draw()
    }
}

/// A place to a tenth of a unit.
fn place(at: f64) -> String {
    format!("{at:.1}")
}

fn line(series: &Series, x: &Scale, y: &Scale) -> String {
    let place = |(at, point): (usize, &(f64, f64))| {
        format!("{}{:.1} {:.1}", if at == 0 { 'M' } else { 'L' }, x.at(point.0), y.at(point.1))
    };
    series.points.iter().enumerate().map(place).collect()
}

fn marks(series: &Series, number: usize, x: &Scale, y: &Scale) -> String {
    series.points.iter().map(|point| shape(number, x.at(point.0), y.at(point.1))).collect()
}

/// The shape of a series' points: a square, a triangle, a diamond, a cross.
fn shape(number: usize, x: f64, y: f64) -> String {
    match number % 4 {
        0 => format!("M{:.1} {:.1}h6v6h-6z", x - 3.0, y - 3.0),
        1 => format!("M{:.1} {:.1}l4.5 8h-9z", x, y - 5.0),
        2 => format!("M{:.1} {:.1}l4.5 4.5l-4.5 4.5l-4.5-4.5z", x, y - 4.5),
        _ => format!("M{:.1} {:.1}h2v3h3v2h-3v3h-2v-3h-3v-2h3z", x - 1.0, y - 4.0),
    }
}

/// A group of bars: a name, and for each series a value.
pub type Group = (String, Vec<f64>);

/// Horizontal bars with their values beside them, as a table that draws itself: a row is a bar.
pub fn bars(title: &str, what: &str, series: &[(&str, Unit)], groups: &[Group]) -> Option<Markup> {
    let most_of =
        |at: usize| groups.iter().filter_map(|g| g.1.get(at)).copied().fold(0.0, f64::max);
    let most: Vec<f64> = (0..series.len()).map(most_of).collect();
    (!groups.is_empty()).then(|| html! {
        div.scrolls tabindex="0" role="region" aria-label=(title) {
            table.bars {
                caption { (title) }
                thead { tr {
                    th scope="col" { (what) }
                    @for (name, _) in series { th scope="col" { (name) } }
                } }
                tbody {
                    @for (name, values) in groups {
                        tr {
                            th scope="row" { (name) }
                            @for (at, value) in values.iter().enumerate().take(series.len()) {
                                td {
                                    svg.bar viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true" {
                                        rect class={ "s" (at) } height="10"
                                            width=(format!("{:.1}", bar(*value, most[at]))) {}
                                    }
                                    " " (human(*value, series[at].1))
                                }
                            }
                        }
                    }
                }
            }
        }
    })
}

fn bar(value: f64, most: f64) -> f64 {
    if most > 0.0 { (value / most * 100.0).clamp(0.0, 100.0) } else { 0.0 }
}
