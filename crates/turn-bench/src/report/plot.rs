//! Lines over two axes, as SVG.

use std::fmt::Write as _;

use super::escape;
use super::scale::{Scale, Spread};

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 300.0;
/// Room for the marks' labels: left, right, top, bottom.
const MARGIN: [f64; 4] = [76.0, 20.0, 14.0, 46.0];

/// How a number is written on an axis.
pub(super) type Write = fn(f64) -> String;

/// One of the two axes.
pub(super) struct Axis {
    pub(super) title: &'static str,
    pub(super) spread: Spread,
    pub(super) write: Write,
}

/// Points of one kind.
pub(super) struct Line {
    pub(super) name: String,
    /// Whether a line joins them, in their order: not where they were measured one by one.
    pub(super) joined: bool,
    /// Which of the page's colours, the same for the same server everywhere.
    pub(super) colour: usize,
    pub(super) points: Vec<(f64, f64)>,
}

/// Lines over two axes, with a legend when there are several.
pub(super) struct Plot {
    /// What it shows, for those who cannot see it.
    pub(super) title: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) lines: Vec<Line>,
}

impl Plot {
    /// The picture; empty when there is nothing to show.
    pub(super) fn svg(&self) -> String {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        if points().count() == 0 {
            return String::new();
        }
        let [left, right, top, bottom] = MARGIN;
        let x = Scale::over(self.x.spread, points().map(|point| point.0), (left, WIDTH - right));
        let y = Scale::over(self.y.spread, points().map(|point| point.1), (HEIGHT - bottom, top));
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
            escape(&self.title)
        );
        self.grid(&mut svg, &x, &y);
        for line in &self.lines {
            draw(&mut svg, line, &x, &y, (self.x.write, self.y.write));
        }
        svg.push_str("</svg>");
        svg + &legend(&self.lines)
    }

    fn grid(&self, svg: &mut String, x: &Scale, y: &Scale) {
        let [left, right, top, bottom] = MARGIN;
        let (end, floor) = (WIDTH - right, HEIGHT - bottom);
        for mark in y.marks() {
            let (place, text) = (y.place(mark), escape(&(self.y.write)(mark)));
            put(
                svg,
                format_args!(
                    "<path class=\"grid\" d=\"M{left} {place:.1}H{end}\"/><text class=\"mark\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
                    left - 8.0,
                    place + 4.0
                ),
            );
        }
        for mark in x.marks() {
            let (place, text) = (x.place(mark), escape(&(self.x.write)(mark)));
            put(
                svg,
                format_args!(
                    "<path class=\"grid\" d=\"M{place:.1} {top}V{floor}\"/><text class=\"mark\" x=\"{place:.1}\" y=\"{}\" text-anchor=\"middle\">{text}</text>",
                    floor + 16.0
                ),
            );
        }
        put(svg, format_args!("<path class=\"axis\" d=\"M{left} {top}V{floor}H{end}\"/>"));
        let middle = (left + end) / 2.0;
        put(
            svg,
            format_args!(
                "<text class=\"title\" x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                HEIGHT - 8.0,
                escape(self.x.title)
            ),
        );
        let centre = (top + floor) / 2.0;
        put(
            svg,
            format_args!(
                "<text class=\"title\" transform=\"translate(14 {centre}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
                escape(self.y.title)
            ),
        );
    }
}

fn draw(svg: &mut String, line: &Line, x: &Scale, y: &Scale, (write_x, write_y): (Write, Write)) {
    if line.joined {
        let place = |point: &(f64, f64)| format!("{:.1},{:.1}", x.place(point.0), y.place(point.1));
        let places: Vec<String> = line.points.iter().map(place).collect();
        let (colour, places) = (line.colour, places.join(" "));
        put(svg, format_args!("<polyline class=\"line c{colour}\" points=\"{places}\"/>"));
    }
    for point in &line.points {
        put(
            svg,
            format_args!(
                "<circle class=\"dot c{}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\"><title>{}: {} at {}</title></circle>",
                line.colour,
                x.place(point.0),
                y.place(point.1),
                escape(&line.name),
                escape(&write_y(point.1)),
                escape(&write_x(point.0)),
            ),
        );
    }
}

/// The names beside their colours; none for a single line.
fn legend(lines: &[Line]) -> String {
    if lines.len() < 2 {
        return String::new();
    }
    let mut html = String::from("<p class=\"legend\">");
    for line in lines {
        put(
            &mut html,
            format_args!("<span class=\"key c{}\"></span>{} ", line.colour, escape(&line.name)),
        );
    }
    html + "</p>"
}

/// Appends; a `String` takes whatever it is given.
fn put(out: &mut String, what: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(what);
}

#[cfg(test)]
mod tests {
    use super::super::units;
    use super::*;

    fn plot(lines: Vec<Line>) -> Plot {
        let axis = |title, spread| Axis { title, spread, write: units::rate };
        Plot {
            title: "loss <by> rate".to_owned(),
            x: axis("packets per second", Spread::Linear),
            y: axis("loss", Spread::Linear),
            lines,
        }
    }

    #[test]
    fn every_point_is_drawn_within_the_paper_and_told_in_words() {
        let points = vec![(0.0, 0.0), (250_000.0, 3.0), (900_000.0, 8.0)];
        let svg =
            plot(vec![Line { name: "A&B".to_owned(), joined: true, colour: 2, points }]).svg();
        assert_eq!(svg.matches("<circle").count(), 3);
        assert!(svg.contains("cx=\"76.0\" cy=\"254.0\""), "the origin: {svg}");
        assert!(svg.contains("A&amp;B: 3 at 250 k"), "{svg}");
        assert!(svg.contains("loss &lt;by&gt; rate"));
        assert!(!svg.contains("legend"), "one line needs none");
    }

    #[test]
    fn nothing_measured_draws_nothing() {
        assert_eq!(plot(vec![]).svg(), "");
        assert_eq!(
            plot(vec![Line { name: String::new(), joined: true, colour: 0, points: vec![] }]).svg(),
            ""
        );
    }
}
