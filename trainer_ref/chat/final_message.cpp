#include <bascule/trainer_ref/chat/final_message.h>

#include <random>

#include "absl/strings/str_format.h"
#include <bascule/trainer_ref/chat/texts.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

// 128 random bits: neither the conversation nor the template can contain it.
std::string unique_marker() {
  std::random_device random;
  return absl::StrFormat("%08X%08X%08X%08X", random(), random(), random(), random());
}

}  // namespace

absl::StatusOr<std::string> render_unfinished(const ChatTemplate& chat, ChatTemplate::Json messages,
                                              const ChatTemplate::Json& tools, const ChatTemplate::Json& variables) {
  using jinja::Side, jinja::stripped;
  const bool has_last = messages.is_array() && !messages.empty() && messages.back().is_object();
  const auto last = has_last ? messages.back().find("content") : messages.end();
  const std::string content =
      has_last && last != messages.back().end() && last->is_string() ? last->get<std::string>() : "";
  if (stripped(content, Side::kBoth).empty())
    return invalid_argument("continue_final_message: expected a last message with content, found none");
  // As in transformers, a blank after the marker shows whether the template trims the content.
  const std::string marker = unique_marker();
  *last = cat(content, marker, " ");
  BASCULE_ASSIGN(std::string text, chat.render(messages, tools, /*add_generation_prompt=*/false, variables));
  const std::size_t end = text.rfind(marker);
  const bool is_written = end != std::string::npos;
  const bool is_trimmed = is_written && !std::string_view(text).substr(end + marker.size()).starts_with(' ');
  text.resize(is_written ? end : 0);
  if (!text.ends_with(stripped(content, Side::kLeft)))
    return invalid_argument("continue_final_message: the chat template ", is_written ? "changes" : "leaves out",
                            " the last message's content; give content that it writes unchanged, or leave "
                            "continue_final_message out");
  if (is_trimmed) text.resize(stripped(text, Side::kRight).size());
  return text;
}

}  // namespace bascule::ref
