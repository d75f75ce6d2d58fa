//! Draws pictures, as SVG.

use super::Plot;
use fragmend_sys::output::{self, Audience};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use std::path::Path;

/// Why a picture could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {why}")]
pub struct NotDrawn {
    /// The file.
    pub file: String,
    /// Why.
    pub why: String,
}

const SIZE: (u32, u32) = (900, 520);
/// Space above the plot, for the names of the series.
const HEADROOM: f64 = 1.35;

/// The colours of Okabe and Ito, which can also be told apart by colour-blind readers.
const COLORS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(86, 180, 233),
    RGBColor(204, 121, 167),
    RGBColor(0, 0, 0),
];

fn color(n: usize) -> RGBColor {
    COLORS[n % COLORS.len()]
}

/// A label of the upright axis.
fn height(y: &f64) -> String {
    if *y < 10.0 { format!("{y:.1}") } else { format!("{y:.0}") }
}

/// The area in which a picture's series are.
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Draws the names of the series, in a box.
fn legend<'a>(chart: &mut Chart<'a, 'a>) -> Result<(), String> {
    let drawn = chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE)
        .border_style(BLACK)
        .draw();
    drawn.map_err(|e| e.to_string())
}

impl Plot {
    /// Draws it to a file in a directory.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn draw(&self, dir: &Path) -> Result<(), NotDrawn> {
        self.draw_to(&dir.join(format!("{}.svg", self.name())))
    }

    /// Draws it to a file of any name.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn draw_to(&self, file: &Path) -> Result<(), NotDrawn> {
        let mut text = String::new();
        let drawn = match self {
            Self::Lines { .. } => self.lines(&mut text),
            Self::Bars { .. } => self.bars(&mut text),
            Self::Points { .. } => self.points(&mut text),
        };
        let not_drawn = |why: String| NotDrawn { file: file.display().to_string(), why };
        drawn.map_err(|e| not_drawn(e.to_string()))?;
        output::write(file, Audience::Anybody, text.as_bytes())
            .map_err(|e| not_drawn(e.to_string()))
    }

    fn lines(&self, text: &mut String) -> Result<(), Box<dyn std::error::Error>> {
        let Self::Lines { title, axes, logarithmic, lines, .. } = self else { return Ok(()) };
        let area = SVGBackend::with_string(text, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let place = |x: f64| if *logarithmic { x.log2() } else { x };
        let points = || lines.iter().flat_map(|(_, points)| points);
        let least = points().map(|(x, _)| place(*x)).fold(f64::INFINITY, f64::min);
        let most = points().map(|(x, _)| place(*x)).fold(f64::NEG_INFINITY, f64::max);
        let top = points().map(|(_, y)| *y).fold(0.0, f64::max) * HEADROOM;
        let mut chart = ChartBuilder::on(&area)
            .caption(title, ("sans-serif", 20))
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(70)
            .build_cartesian_2d(least..most, 0.0..top)?;
        let label = |x: &f64| {
            let x = if *logarithmic { x.exp2() } else { *x };
            format!("{x:.0}")
        };
        let (below, beside) = (&axes[0], &axes[1]);
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .x_desc(below)
            .y_desc(beside)
            .x_label_formatter(&label)
            .y_label_formatter(&height)
            .draw()?;
        for (n, (name, points)) in lines.iter().enumerate() {
            let color = color(n);
            let points: Vec<(f64, f64)> = points.iter().map(|(x, y)| (place(*x), *y)).collect();
            chart
                .draw_series(LineSeries::new(points.clone(), color.stroke_width(2)))?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color));
            chart.draw_series(points.iter().map(|at| Circle::new(*at, 3, color.filled())))?;
        }
        legend(&mut chart)?;
        area.present()?;
        Ok(())
    }

    fn bars(&self, text: &mut String) -> Result<(), Box<dyn std::error::Error>> {
        let Self::Bars { title, axis, series, groups, .. } = self else { return Ok(()) };
        let area = SVGBackend::with_string(text, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let heights = groups.iter().flat_map(|(_, bars)| bars).copied();
        let top = heights.fold(0.0, f64::max) * HEADROOM;
        let mut chart = ChartBuilder::on(&area)
            .caption(title, ("sans-serif", 20))
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(70)
            .build_cartesian_2d(0.0..groups.len() as f64, 0.0..top)?;
        let name = |x: &f64| {
            let middle = (x.fract() - 0.5).abs() < 0.01;
            groups.get(*x as usize).filter(|_| middle).map(|(name, _)| name.clone())
        };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .y_label_formatter(&height)
            .x_labels(groups.len() * 2 + 1)
            .x_label_formatter(&|x| name(x).unwrap_or_default())
            .y_desc(axis)
            .draw()?;
        let width = 0.8 / series.len().max(1) as f64;
        for (n, name) in series.iter().enumerate() {
            let color = color(n);
            let bar = |(group, (_, bars)): (usize, &(String, Vec<f64>))| {
                let left = group as f64 + 0.1 + n as f64 * width;
                let height = bars.get(n).copied().unwrap_or(0.0);
                Rectangle::new([(left, 0.0), (left + width * 0.9, height)], color.filled())
            };
            chart.draw_series(groups.iter().enumerate().map(bar))?.label(name).legend(
                move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], color.filled()),
            );
        }
        legend(&mut chart)?;
        area.present()?;
        Ok(())
    }

    fn points(&self, text: &mut String) -> Result<(), Box<dyn std::error::Error>> {
        let Self::Points { title, axes, points, front, .. } = self else { return Ok(()) };
        let area = SVGBackend::with_string(text, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let range = |at: fn(&(f64, f64)) -> f64| {
            let all = || points.iter().map(|(_, place)| at(place)).chain([0.0]);
            let (least, most) =
                (all().fold(f64::INFINITY, f64::min), all().fold(f64::NEG_INFINITY, f64::max));
            let margin = ((most - least) * 0.12).max(1e-3);
            least - margin..most + margin
        };
        let mut chart = ChartBuilder::on(&area)
            .caption(title, ("sans-serif", 20))
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(70)
            .build_cartesian_2d(range(|place| place.0), range(|place| place.1))?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .x_desc(&axes[0])
            .y_desc(&axes[1])
            .draw()?;
        chart.draw_series(LineSeries::new(front.iter().copied(), BLACK.stroke_width(1)))?;
        for (n, (name, place)) in points.iter().enumerate() {
            let color = color(n);
            chart.draw_series([Circle::new(*place, 4, color.filled())])?;
            let style = ("sans-serif", 13).into_font().color(&color);
            chart.draw_series([Text::new(name.clone(), *place, style)])?;
        }
        area.present()?;
        Ok(())
    }
}
