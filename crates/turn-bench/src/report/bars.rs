//! Bars side by side with the spread of what they stand for, as SVG.

use std::fmt::Write as _;

use super::escape;
use super::plot::Write;
use super::scale::{Scale, Spread};

const WIDTH: f64 = 640.0;
/// Where bars start: right of the names.
const LEFT: f64 = 190.0;
/// Where the longest ends: left of the figures.
const END: f64 = 540.0;
const BAR: f64 = 18.0;
const GAP: f64 = 6.0;

/// One bar: a median, and the lowest and highest of what it is the median of.
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) colour: usize,
    pub(super) median: f64,
    pub(super) range: (f64, f64),
}

/// Bars over a common axis that starts at zero.
pub(super) struct Bars {
    /// What it shows, for those who cannot see it.
    pub(super) title: String,
    pub(super) write: Write,
    pub(super) bars: Vec<Bar>,
    /// A value to draw a line at: 1 where ratios are shown.
    pub(super) line: Option<f64>,
}

impl Bars {
    /// The picture; empty when there is nothing to show.
    pub(super) fn svg(&self) -> String {
        if self.bars.is_empty() {
            return String::new();
        }
        let values = self.bars.iter().flat_map(|bar| [bar.median, bar.range.1]).chain(self.line);
        let scale = Scale::over(Spread::Linear, values, (LEFT, END));
        let height = GAP + self.bars.len() as f64 * (BAR + GAP);
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">",
            escape(&self.title)
        );
        for (row, bar) in self.bars.iter().enumerate() {
            self.draw(&mut svg, bar, GAP + row as f64 * (BAR + GAP), &scale);
        }
        if let Some(value) = self.line {
            // A `String` takes whatever it is given.
            let _ =
                write!(svg, "<path class=\"level\" d=\"M{:.1} 0V{height}\"/>", scale.place(value));
        }
        svg + "</svg>"
    }

    fn draw(&self, svg: &mut String, bar: &Bar, top: f64, scale: &Scale) {
        let middle = top + BAR / 2.0;
        let (low, high) = (scale.place(bar.range.0), scale.place(bar.range.1));
        let tip = scale.place(bar.median);
        let figures = format!("{} to {}", (self.write)(bar.range.0), (self.write)(bar.range.1));
        // A `String` takes whatever it is given.
        let _ = write!(
            svg,
            "<text class=\"name\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <rect class=\"bar c{}\" x=\"{LEFT}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{BAR}\" rx=\"2\"><title>{}: {}</title></rect>\
             <path class=\"whisker\" d=\"M{low:.1} {middle:.1}H{high:.1}M{low:.1} {:.1}v6M{high:.1} {:.1}v6\"/>\
             <text class=\"figure\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            LEFT - 8.0,
            middle + 4.0,
            escape(&bar.name),
            bar.colour,
            tip - LEFT,
            escape(&bar.name),
            escape(&figures),
            middle - 3.0,
            middle - 3.0,
            tip.max(high) + 8.0,
            middle + 4.0,
            escape(&(self.write)(bar.median)),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::units;
    use super::*;

    #[test]
    fn a_bar_is_as_long_as_its_median_and_shows_its_spread() {
        let bar =
            |name: &str, median, range| Bar { name: name.to_owned(), colour: 0, median, range };
        let bars = Bars {
            title: "ratio".to_owned(),
            write: units::ratio,
            bars: vec![bar("audio", 4.0, (3.5, 5.0)), bar("video", 2.0, (2.0, 2.0))],
            line: Some(1.0),
        };
        let svg = bars.svg();
        assert!(svg.contains("width=\"280.0\"") && svg.contains("width=\"140.0\""), "{svg}");
        assert!(svg.contains("audio: 3.5× to 5×"), "{svg}");
        assert!(svg.contains("class=\"level\" d=\"M260.0"), "{svg}");
    }
}
