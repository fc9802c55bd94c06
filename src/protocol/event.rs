//! A message whose method is resolved.

use std::ops::Deref;

use super::method::Method;
use crate::wire::Message;

/// A message and the method that it names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Event<'a> {
    message: &'a Message<'a>,
    /// The method; `None` for a response and for a method that this program does not know.
    pub(crate) method: Option<Method>,
}

impl<'a> Event<'a> {
    pub(crate) fn of(message: &'a Message<'a>) -> Event<'a> {
        Event { message, method: message.method.as_deref().and_then(Method::of) }
    }

    /// The name of its method, known or not; `None` for a response.
    pub(crate) fn name(&self) -> Option<&'a str> {
        self.message.method.as_deref()
    }
}

impl<'a> Deref for Event<'a> {
    type Target = Message<'a>;

    fn deref(&self) -> &Message<'a> {
        self.message
    }
}
