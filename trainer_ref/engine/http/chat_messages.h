// The messages of a chat request, in the form that chat templates expect.
//
// A history is text that people and models wrote, and models make mistakes. Whatever can be rendered is taken; an error
// here would end the conversation, since clients send the whole history again with each turn.
#pragma once

#include "absl/status/status.h"
#include <bascule/trainer_ref/chat/chat_template.h>

namespace bascule::ref {

// Prepares `messages`, a list, in place, as vLLM does:
//   content         parts of text are joined, one line per part; null becomes "", except that a message with tool calls
//                   keeps it, because templates test for it
//   arguments       of a tool call: JSON in a text becomes its value, and a text that is not JSON stays. If they are
//                   missing, null or blank, they become {}
//   keys            whose value is null, and an empty list of tool calls, are removed
// Other keys and every role stay. Returns INVALID_ARGUMENT if a message is not an object with a role, or if its content
// is not text, for which templates would write nothing.
absl::Status prepare_messages(ChatTemplate::Json& messages);

// For templates that fail on what prepare_messages() keeps: null contents become "", and arguments that are not an
// object become one, with the single key "arguments". Returns whether that changed anything.
bool simplify_messages(ChatTemplate::Json& messages);

}  // namespace bascule::ref
