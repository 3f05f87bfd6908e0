//! Rust text without its comments and strings, so that a rule about code does not stumble over prose.
//!
//! This is a lexer for just that: line and nested block comments, strings with escapes, raw strings, characters
//! against lifetimes. What is left out becomes spaces, so lines and columns (in characters) stay what they were.

/// `(code, uncommented)`: without comments and string contents, and without comments only.
pub(crate) fn masks(text: &str) -> (String, String) {
    let mut lexer = Lexer { chars: text.chars().collect(), at: 0, code: String::new(), uncommented: String::new() };
    while lexer.at < lexer.chars.len() {
        lexer.step();
    }
    (lexer.code, lexer.uncommented)
}

struct Lexer {
    chars: Vec<char>,
    at: usize,
    code: String,
    uncommented: String,
}

/// What a stretch of text is.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Code,
    Text,
    Comment,
}

impl Lexer {
    fn step(&mut self) {
        match (self.peek(0), self.peek(1)) {
            ('/', '/') => {
                let len = self.chars.iter().skip(self.at).take_while(|char| **char != '\n').count();
                self.take(len, Part::Comment);
            }
            ('/', '*') => self.block_comment(),
            ('"', _) => self.string(),
            ('r', '"' | '#') if !self.inside_word() => self.raw_string(1),
            ('b' | 'c', 'r') if !self.inside_word() && matches!(self.peek(2), '"' | '#') => self.raw_string(2),
            ('\'', _) => self.quote(),
            _ => self.take(1, Part::Code),
        }
    }

    fn peek(&self, ahead: usize) -> char {
        self.chars.get(self.at + ahead).copied().unwrap_or('\0')
    }

    /// Whether the character before belongs to a name, so that an `r` here starts no raw string.
    fn inside_word(&self) -> bool {
        let before = self.at.checked_sub(1).and_then(|at| self.chars.get(at));
        before.is_some_and(|char| char.is_alphanumeric() || *char == '_')
    }

    fn take(&mut self, len: usize, part: Part) {
        let end = (self.at + len).min(self.chars.len());
        while let Some(char) = self.chars.get(self.at).filter(|_| self.at < end) {
            let blank = if *char == '\n' { '\n' } else { ' ' };
            self.code.push(if part == Part::Code { *char } else { blank });
            self.uncommented.push(if part == Part::Comment { blank } else { *char });
            self.at += 1;
        }
    }

    fn block_comment(&mut self) {
        let mut depth = 0_usize;
        loop {
            match (self.peek(0), self.peek(1)) {
                ('/', '*') => depth += 1,
                ('*', '/') => depth -= 1,
                _ if self.at >= self.chars.len() => return,
                _ => {
                    self.take(1, Part::Comment);
                    continue;
                }
            }
            self.take(2, Part::Comment);
            if depth == 0 {
                return;
            }
        }
    }

    fn string(&mut self) {
        self.take(1, Part::Code);
        while self.at < self.chars.len() && self.peek(0) != '"' {
            self.take(if self.peek(0) == '\\' { 2 } else { 1 }, Part::Text);
        }
        self.take(1, Part::Code);
    }

    /// At `r`, with its prefix `prefix` characters long; `r#name` is no string.
    fn raw_string(&mut self, prefix: usize) {
        let hashes = (prefix..).take_while(|ahead| self.peek(*ahead) == '#').count();
        if self.peek(prefix + hashes) != '"' {
            return self.take(prefix + hashes, Part::Code);
        }
        self.take(prefix + hashes + 1, Part::Code);
        let ends = |lexer: &Self| lexer.peek(0) == '"' && (1..=hashes).all(|ahead| lexer.peek(ahead) == '#');
        while self.at < self.chars.len() && !ends(self) {
            self.take(1, Part::Text);
        }
        self.take(1 + hashes, Part::Code);
    }

    /// A character such as `'"'` hides a quote; a lifetime such as `'a` hides nothing.
    fn quote(&mut self) {
        let len = match (self.peek(1), self.peek(2)) {
            ('\\', _) => 3 + (3..12).take_while(|ahead| self.peek(*ahead) != '\'').count() + 1,
            (_, '\'') => 3,
            _ => return self.take(1, Part::Code),
        };
        self.take(1, Part::Code);
        self.take(len - 2, Part::Text);
        self.take(1, Part::Code);
    }
}
