//! How it is drawn.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Row, Table, TableState};

use super::super::output::{one_line, printable};
use super::super::pause;
use super::super::words::{age, span};
use super::model::{Look, Model, QueueRow};

const FAINT: Style = Style::new().fg(Color::DarkGray);
const CARE: Style = Style::new().fg(Color::Yellow);
const BAD: Style = Style::new().fg(Color::Red);
const TITLE: Style = Style::new().add_modifier(Modifier::BOLD);

/// Lines of a section at most, its header included.
const WORKERS_MAX: usize = 9;
const PAUSES_MAX: usize = 5;

/// So many lines, as a height.
fn height(lines: usize) -> u16 {
    u16::try_from(lines).unwrap_or(u16::MAX)
}

pub(super) fn draw(frame: &mut Frame<'_>, model: &mut Model) {
    let Some(now) = model.now.clone() else { return };
    let workers = height((now.workers.len() + 2).min(WORKERS_MAX));
    let pauses = if now.pauses.is_empty() { 0 } else { height((now.pauses.len() + 2).min(PAUSES_MAX)) };
    let errors = if model.errors.is_empty() { 0 } else { height(model.errors.len() + 2) };
    let [head, queues_at, workers_at, pauses_at, errors_at, foot] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Min(3),
        Constraint::Length(workers),
        Constraint::Length(pauses),
        Constraint::Length(errors),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    header(frame, head, model, &now);
    queues(frame, queues_at, model);
    workers_table(frame, workers_at, &now);
    if pauses > 0 {
        pause_lines(frame, pauses_at, &now);
    }
    if errors > 0 {
        error_table(frame, errors_at, model, &now);
    }
    footer(frame, foot, model);
}

fn header(frame: &mut Frame<'_>, area: Rect, model: &Model, now: &Look) {
    let counts = &now.counts;
    let ends = model.ends().map_or_else(String::new, |rate| format!("  {rate:.0} ends/s"));
    let text = format!(
        "{} running  {} scheduled  {} parked  {} dead{ends}  {}",
        counts.running,
        counts.scheduled,
        counts.parked,
        counts.dead,
        printable(&model.url)
    );
    frame.render_widget(Paragraph::new(Line::styled(text, TITLE)), area);
}

/// A rate with its sign.
fn rate(row: &QueueRow) -> String {
    match row.rate {
        None => String::new(),
        Some(rate) if rate.abs() < 0.05 => "0/s".to_owned(),
        Some(rate) => format!("{rate:+.1}/s"),
    }
}

fn queues(frame: &mut Frame<'_>, area: Rect, model: &mut Model) {
    let rows = model.queues();
    if rows.is_empty() {
        frame.render_widget(Paragraph::new(Line::styled("Nothing waits.", FAINT)), area);
        return;
    }
    model.selected = model.selected.min(rows.len() - 1);
    let row = |queue: &QueueRow| {
        let mut cells = vec![printable(&queue.name)];
        cells.extend(queue.waiting.map(|n| n.to_string()));
        cells.push(queue.waiting.iter().sum::<u64>().to_string());
        cells.push(rate(queue));
        cells.push(if queue.paused { "paused".to_owned() } else { String::new() });
        Row::new(cells).style(if queue.paused { CARE } else { Style::new() })
    };
    let widths = [
        Constraint::Fill(2),
        Constraint::Length(9),
        Constraint::Length(9),
        Constraint::Length(9),
        Constraint::Length(9),
        Constraint::Length(9),
        Constraint::Length(11),
        Constraint::Length(6),
    ];
    let header = Row::new(["QUEUE", "URGENT", "HIGH", "NORMAL", "LOW", "WAITING", "RATE", "HELD"]).style(FAINT);
    let table = Table::new(rows.iter().map(row), widths)
        .header(header)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .highlight_symbol("> ");
    let mut state = TableState::new().with_selected(Some(model.selected));
    frame.render_stateful_widget(table, area, &mut state);
}

fn workers_table(frame: &mut Frame<'_>, area: Rect, now: &Look) {
    if now.workers.is_empty() {
        let style = if now.counts.waiting.is_empty() { FAINT } else { BAD };
        frame.render_widget(Paragraph::new(Line::styled("No worker is there.", style)), area);
        return;
    }
    let rows = now.workers.iter().map(|worker| {
        let left = worker.lease_ms.saturating_sub(now.counts.now_ms);
        let (state, style) = match (left, worker.running) {
            (0, _) => ("given up", BAD),
            (_, 0) => ("idle", FAINT),
            _ => ("at work", Style::new()),
        };
        let agents = printable(&worker.agents.join(", "));
        Row::new([printable(worker.id.as_str()), state.to_owned(), worker.running.to_string(), agents]).style(style)
    });
    let widths = [Constraint::Fill(2), Constraint::Length(9), Constraint::Length(9), Constraint::Fill(3)];
    let header = Row::new(["WORKER", "STATE", "RUNNING", "AGENTS"]).style(FAINT);
    frame.render_widget(Table::new(rows, widths).header(header), area);
}

fn pause_lines(frame: &mut Frame<'_>, area: Rect, now: &Look) {
    let lines = now.pauses.iter().map(|pause| {
        let why = if pause.why.is_empty() { String::new() } else { format!(": {}", one_line(&printable(&pause.why))) };
        let what = printable(&pause.what.to_string());
        Line::styled(format!("{what} {}{why}", pause::how_long(pause, now.counts.now_ms)), CARE)
    });
    let lines: Vec<Line<'_>> = std::iter::once(Line::styled("PAUSED", FAINT)).chain(lines).collect();
    frame.render_widget(Paragraph::new(lines), area);
}

fn error_table(frame: &mut Frame<'_>, area: Rect, model: &Model, now: &Look) {
    let rows = model.errors.iter().map(|failed| {
        let ago = age(now.counts.now_ms.saturating_sub(failed.ended_ms));
        Row::new([failed.id.clone(), printable(&failed.agent), ago, failed.error.clone()])
    });
    let widths = [Constraint::Length(36), Constraint::Length(16), Constraint::Length(9), Constraint::Fill(1)];
    let header = Row::new(["DIED", "AGENT", "AGO", "ERROR"]).style(FAINT);
    frame.render_widget(Table::new(rows, widths).header(header), area);
}

fn footer(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    let line = match &model.ask {
        Some((queue, hold)) => {
            let verb = if *hold { "pause" } else { "resume" };
            Line::styled(format!("{verb} queue {}? y: yes, any other key: no", printable(queue)), CARE)
        }
        None if !model.note.is_empty() => Line::styled(one_line(&printable(&model.note)), CARE),
        None => Line::styled(format!("q quit  p pause or resume  up, down select  every {}", span(1_000)), FAINT),
    };
    frame.render_widget(Paragraph::new(line), area);
}
