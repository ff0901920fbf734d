//! The terminal while `nigh top` has it: its alternate screen, and keys one by one.
//!
//! Invariants:
//! 1. A [`Screen`] is the right to the terminal. Dropping it, by return, error or panic, gives the
//!    terminal back as it was.
//! 2. SIGTERM, SIGINT and SIGHUP end the view as `q` does.

use super::drawing::{ScreenLine, Size, Style};
use anyhow::{Context, Result};
use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use crossterm::style::{Attribute, Color, Print, ResetColor, SetAttribute, SetForegroundColor};
use crossterm::{cursor, execute, queue, terminal};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longest time until a signal is seen.
const SIGNAL_LATENCY: Duration = Duration::from_millis(100);
/// The size of a terminal that doesn't tell its size.
const USUAL_SIZE: (u16, u16) = (80, 24);

/// The reason why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wake {
    Time,
    Resized,
    Quit,
}

/// The terminal.
pub(super) struct Screen {
    ended: Arc<AtomicBool>,
}

impl Screen {
    /// Takes over the terminal.
    pub(super) fn take() -> Result<Self> {
        let ended = Arc::new(AtomicBool::new(false));
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&ended))
                .context("can't watch for signals")?;
        }
        terminal::enable_raw_mode().context("can't take the terminal")?;
        // From here on, dropping it gives the terminal back.
        let screen = Self { ended };
        execute!(std::io::stdout(), terminal::EnterAlternateScreen, cursor::Hide)
            .context("can't take the terminal")?;
        Ok(screen)
    }

    /// The size of the screen.
    pub(super) fn size(&self) -> Size {
        let (columns, rows) = cells();
        Size { columns: usize::from(columns), rows: Some(usize::from(rows)) }
    }

    /// Shows these lines alone.
    pub(super) fn show(&self, lines: &[ScreenLine]) -> Result<()> {
        let mut out = std::io::stdout().lock();
        let (_, rows) = cells();
        for (row, line) in (0..rows).zip(lines) {
            queue!(out, cursor::MoveTo(0, row))?;
            match line.style {
                Style::Plain => {}
                Style::Title => queue!(out, SetAttribute(Attribute::Bold))?,
                Style::Alarm => queue!(out, SetForegroundColor(Color::Yellow))?,
            }
            queue!(out, Print(&line.text), SetAttribute(Attribute::Reset), ResetColor)?;
            queue!(out, terminal::Clear(terminal::ClearType::UntilNewLine))?;
        }
        if let Some(row) = u16::try_from(lines.len()).ok().filter(|row| *row < rows) {
            queue!(out, cursor::MoveTo(0, row))?;
            queue!(out, terminal::Clear(terminal::ClearType::FromCursorDown))?;
        }
        out.flush().context("can't write to the terminal")
    }

    /// Waits for this time; a key, a signal or a new size ends the wait.
    pub(super) fn wait(&self, time: Duration) -> Result<Wake> {
        let began = Instant::now();
        loop {
            if self.ended.load(Ordering::Relaxed) {
                return Ok(Wake::Quit);
            }
            let left = time.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Ok(Wake::Time);
            }
            if !event::poll(left.min(SIGNAL_LATENCY)).context("can't read from the terminal")? {
                continue;
            }
            match event::read().context("can't read from the terminal")? {
                Event::Resize(..) => return Ok(Wake::Resized),
                Event::Key(key) if key.kind != KeyEventKind::Release => {
                    let control = key.modifiers.contains(KeyModifiers::CONTROL);
                    match key.code {
                        KeyCode::Char('q' | 'Q') | KeyCode::Esc => return Ok(Wake::Quit),
                        KeyCode::Char('c' | 'd') if control => return Ok(Wake::Quit),
                        _ => {}
                    }
                }
                _ => {}
            }
        }
    }
}

/// Columns and rows of the terminal.
fn cells() -> (u16, u16) {
    match terminal::size() {
        Ok((columns, rows)) if columns > 0 && rows > 0 => (columns, rows),
        _ => USUAL_SIZE,
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // If the terminal is gone, an error could not be shown.
        let _ =
            execute!(std::io::stdout(), ResetColor, cursor::Show, terminal::LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}
