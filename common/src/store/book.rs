//! The book in force, those before it, and how another one takes its place.

use std::collections::HashMap;

use fred::interfaces::{HashesInterface as _, StreamsInterface as _};
use fred::prelude::Value;

use super::reply::Reply;
use super::{Error, Store};
use crate::book::{Compiled, Periods};

/// What became of a book.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// It is in force.
    Applied,
    /// It was in force already.
    Same,
    /// Its revision is in force with other content.
    Conflict,
    /// A newer revision is in force.
    Older(u64),
    /// Another revision is in force than it was to follow.
    Moved(u64),
}

/// What goes with a book.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BookEdit<'a> {
    /// The revision that it was made from: another one must not have come in between. None: any older one; 0: there was no book.
    pub follows: Option<u64>,
    /// Why, for whoever looks at the history.
    pub note: &'a str,
}

/// A book that is, or was, in force.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BookKept {
    /// Its revision.
    pub revision: u64,
    /// Since when, server time in ms; 0 when that is not known.
    pub applied_ms: u64,
    /// Why, as whoever applied it said.
    pub note: String,
    /// The book, in TOML.
    pub text: String,
}

impl Store {
    /// Puts a book in force, at once for every claim; then lets those in line meet it, page by page.
    ///
    /// # Errors
    /// When Redis does not answer. Applying the same book again is safe.
    pub async fn apply_book(&self, book: &Compiled, edit: BookEdit<'_>) -> Result<Applied, Error> {
        let mut args: Vec<Value> = vec![book.revision.to_string().into(), book.print.as_str().into()];
        args.extend([&book.masks, &book.parts, &book.tiers, &book.text].map(|text| Value::from(text.as_str())));
        args.push(book.zones.join(" ").into());
        args.push(edit.note.into());
        args.push(edit.follows.map(|revision| revision.to_string()).unwrap_or_default().into());
        args.push(book.tenants.len().to_string().into());
        for (tenant, tier) in &book.tenants {
            args.extend([tenant, tier].map(|text| Value::from(text.as_str())));
        }
        let periods = self.periods(&book.zones).await?;
        for (field, rules) in book.fields.iter().chain(&periods) {
            args.push(field.as_str().into());
            args.push(Value::Bytes(rules.clone().into()));
        }
        let mut r = Reply::array("book", self.call(|s| &s.book, args).await?)?;
        let (what, revision) = (r.text()?, r.number()?);
        let applied = match what.as_str() {
            "applied" => Applied::Applied,
            "same" => Applied::Same,
            "conflict" => return Ok(Applied::Conflict),
            "moved" => return Ok(Applied::Moved(revision)),
            _ => return Ok(Applied::Older(revision)),
        };
        self.mark_lines().await?;
        Ok(applied)
    }

    /// When the days and months of these zones begin, as scripts read it.
    async fn periods(&self, zones: &[String]) -> Result<Vec<(String, Vec<u8>)>, Error> {
        if zones.is_empty() {
            return Ok(Vec::new());
        }
        let now_ms = self.counts().await?.now_ms;
        Ok(zones.iter().filter_map(|zone| Periods::around(zone, now_ms)).flat_map(|p| p.fields()).collect())
    }

    /// Writes down, for the budgets of the book in force, when the days and months from now on begin. To be called now and then: what is
    /// written down lasts for more than a year.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn extend_periods(&self) -> Result<(), Error> {
        let key = self.base.key("book");
        let of = |e| Error::of("book", e);
        let zones: Option<String> =
            self.retrying(|| async { self.client.hget(key.as_str(), "zones").await.map_err(of) }).await?;
        let zones: Vec<String> = zones.unwrap_or_default().split_whitespace().map(str::to_owned).collect();
        for (field, begins) in self.periods(&zones).await? {
            let pair = (field, Value::Bytes(begins.into()));
            self.retrying(|| async { self.client.hset::<(), _, _>(key.as_str(), pair.clone()).await.map_err(of) })
                .await?;
        }
        Ok(())
    }

    /// The book in force; none when there is none.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn book(&self) -> Result<Option<BookKept>, Error> {
        let key = self.base.key("book");
        let fields = vec!["revision", "text"];
        let (revision, text): (Option<u64>, Option<String>) = self
            .retrying(|| async {
                self.client.hmget(key.as_str(), fields.clone()).await.map_err(|e| Error::of("book", e))
            })
            .await?;
        let Some(revision) = revision else { return Ok(None) };
        let kept = self.books().await?.into_iter().find(|kept| kept.revision == revision).unwrap_or_default();
        Ok(Some(BookKept { revision, text: text.unwrap_or_default(), ..kept }))
    }

    /// The last books that were applied, the newest first; at most 20.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn books(&self) -> Result<Vec<BookKept>, Error> {
        let key = self.base.key("books");
        let of = |e| Error::of("books", e);
        let entries: Vec<(String, HashMap<String, String>)> = self
            .retrying(|| async { self.client.xrevrange_values(key.as_str(), "+", "-", None).await.map_err(of) })
            .await?;
        let kept = |(id, mut fields): (String, HashMap<String, String>)| BookKept {
            revision: fields.get("revision").and_then(|n| n.parse().ok()).unwrap_or(0),
            applied_ms: id.split_once('-').and_then(|(ms, _)| ms.parse().ok()).unwrap_or(0),
            note: fields.remove("note").unwrap_or_default(),
            text: fields.remove("text").unwrap_or_default(),
        };
        Ok(entries.into_iter().map(kept).collect())
    }
}
