//! Access logs of one JSON object per line.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::entry::{Entry, Parsed, Unreadable, address, present, request_line, target};
use super::fields::{Field, Fields, Node};
use super::time::{Clock, of_number};

/// A value that is neither an object nor a list.
#[derive(Clone, Debug)]
enum Scalar<'a> {
    Text(Cow<'a, str>),
    Number(f64),
}

/// The best value for each field, and the rank of its name.
#[derive(Default)]
struct Found<'a>([Option<(usize, Scalar<'a>)>; Field::ALL.len()]);

impl<'a> Found<'a> {
    fn add(&mut self, (field, rank): (Field, usize), value: Scalar<'a>) {
        let place = &mut self.0[field as usize];
        if place.as_ref().is_none_or(|(known, _)| rank < *known) {
            *place = Some((rank, value));
        }
    }

    fn text(&mut self, field: Field) -> Option<Cow<'a, str>> {
        match self.0[field as usize].take()?.1 {
            Scalar::Text(text) => present(text),
            Scalar::Number(number) => Some(number.to_string().into()),
        }
    }
}

pub(super) fn parse<'a>(line: &'a str, fields: &Fields, clock: &mut Clock) -> Result<Parsed<'a>, Unreadable> {
    let mut found = Found::default();
    let mut reader = serde_json::Deserializer::from_str(line);
    let read = Value { node: &fields.0, found: &mut found }.deserialize(&mut reader).and_then(|()| reader.end());
    read.map_err(|_| Unreadable::NoJson)?;
    let at = match found.0[Field::Time as usize].take() {
        None => return Err(Unreadable::NoField(Field::Time)),
        Some((_, Scalar::Number(number))) => of_number(number),
        Some((_, Scalar::Text(text))) => clock.read(&text),
    };
    let at = at.ok_or(Unreadable::BadTime)?;
    let (mut method, mut path) = (found.text(Field::Method), found.text(Field::Path));
    if let Some((_, Scalar::Text(request))) = found.0[Field::Request as usize].take() {
        match split(request) {
            Some((first, second)) => (method, path) = (method.or(Some(first)), path.or(Some(second))),
            None if method.is_none() || path.is_none() => return Ok(Parsed::NoRequest),
            None => {}
        }
    }
    let method = method.ok_or(Unreadable::NoField(Field::Method))?;
    let (in_target, path) = target(path.ok_or(Unreadable::NoField(Field::Path))?);
    Ok(Parsed::Request(Entry {
        at,
        peer: found.text(Field::Ip).and_then(|text| address(&text)),
        method,
        path,
        host: found.text(Field::Host).or(in_target),
        agent: found.text(Field::Agent),
        status: found.text(Field::Status).and_then(|status| status.parse().ok()),
        subject: found.text(Field::Subject),
        tier: found.text(Field::Tier),
    }))
}

/// The method and the target of a request's first line.
fn split(request: Cow<'_, str>) -> Option<(Cow<'_, str>, Cow<'_, str>)> {
    match request {
        Cow::Borrowed(line) => request_line(line).map(|(method, target)| (method.into(), target.into())),
        Cow::Owned(line) => {
            request_line(&line).map(|(method, target)| (method.to_string().into(), target.to_string().into()))
        }
    }
}

/// Reads the values that mean something, and skips all others.
struct Value<'n, 'f, 'a> {
    node: &'n Node,
    found: &'f mut Found<'a>,
}

impl<'a> Value<'_, '_, 'a> {
    fn add<E>(self, value: Scalar<'a>) -> Result<(), E> {
        if let Some(means) = self.node.means {
            self.found.add(means, value);
        }
        Ok(())
    }
}

impl<'a> DeserializeSeed<'a> for Value<'_, '_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for Value<'_, '_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    #[expect(clippy::cast_precision_loss, reason = "a time needs 53 bits until the year 2255 in microseconds")]
    fn visit_u64<E>(self, number: u64) -> Result<(), E> {
        self.add(Scalar::Number(number as f64))
    }

    #[expect(clippy::cast_precision_loss, reason = "it is negative, which no field is")]
    fn visit_i64<E>(self, number: i64) -> Result<(), E> {
        self.add(Scalar::Number(number as f64))
    }

    fn visit_f64<E>(self, number: f64) -> Result<(), E> {
        self.add(Scalar::Number(number))
    }

    fn visit_borrowed_str<E>(self, text: &'a str) -> Result<(), E> {
        self.add(Scalar::Text(text.into()))
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.add(Scalar::Text(text.to_string().into()))
    }

    /// The first value of a list, such as a header field of Caddy's logs.
    fn visit_seq<S: SeqAccess<'a>>(self, mut list: S) -> Result<(), S::Error> {
        list.next_element_seed(self)?;
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<(), M::Error> {
        while let Some(name) = map.next_key_seed(Name(self.node))? {
            match name {
                Some(node) => map.next_value_seed(Value { node, found: &mut *self.found })?,
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// Finds the node of a name.
struct Name<'n>(&'n Node);

impl<'a, 'n> DeserializeSeed<'a> for Name<'n> {
    type Value = Option<&'n Node>;

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl<'n> Visitor<'_> for Name<'n> {
    type Value = Option<&'n Node>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.below.iter().find(|node| node.name == name))
    }
}
