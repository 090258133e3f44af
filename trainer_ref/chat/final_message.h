// Renders a conversation whose last message the model continues.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/chat/chat_template.h>

namespace bascule::ref {

// Renders `messages`, as ChatTemplate::render() does, up to the end of the last message's content: the same text as by
// transformers' continue_final_message. If the template trims the content, blanks at its end are not in the text.
//
// The end is found by a marker that is appended to the content before the template sees it, and never by searching for
// the content, which may also occur elsewhere. Returns INVALID_ARGUMENT if the content is not a text or is blank, and
// if the template leaves the content out or changes it: then the model would continue a different text.
absl::StatusOr<std::string> render_unfinished(const ChatTemplate& chat, ChatTemplate::Json messages,
                                              const ChatTemplate::Json& tools, const ChatTemplate::Json& variables);

}  // namespace bascule::ref
