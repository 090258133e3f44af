// Feeds a chat template and, after a zero byte, a conversation as JSON: {"messages", "tools", "add_generation_prompt",
// "variables"}, of which each may be missing.
//
//   a template renders or is refused, within its bounds of time and memory
//   it renders the same text each time
#include <bascule/trainer_ref/chat/chat_template.h>
#include <bascule/transport/json.h>

#include "fuzz.h"

namespace bascule::fuzz {
namespace {

using absl::StatusCode;
using ref::ChatTemplate;

constexpr std::uint64_t kMostBytes = 1u << 20, kMostSteps = 100'000;

ChatTemplate::Json conversation_of(std::string_view text) {
  if (!parse_json(text, "conversation").ok()) return ChatTemplate::Json::object();  // also bounds the depth
  ChatTemplate::Json json = ChatTemplate::Json::parse(text);
  return json.is_object() ? json : ChatTemplate::Json::object();
}

}  // namespace
}  // namespace bascule::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace bascule;
  using Json = ref::ChatTemplate::Json;
  fuzz::Input input(data, size);
  const auto parsed =
      ref::ChatTemplate::parse(input.text(), {.max_bytes = fuzz::kMostBytes, .max_steps = fuzz::kMostSteps, .now = [] {
                                                return std::chrono::system_clock::from_time_t(1'721'999'045);
                                              }});
  if (!parsed.ok()) {
    fuzz::require_refusal(parsed.status(), {absl::StatusCode::kUnimplemented});
    return 0;
  }
  const Json conversation = fuzz::conversation_of(input.rest());
  const auto render = [&] {
    return parsed->render(conversation.value("messages", Json::array()), conversation.value("tools", Json()),
                          conversation.value("add_generation_prompt", Json()) == Json(true),
                          conversation.value("variables", Json::object()));
  };
  const auto text = render();
  if (text.ok()) {
    fuzz::require(text->size() <= fuzz::kMostBytes, "a rendered text is within its bound");
  } else {
    fuzz::require_refusal(text.status(), {absl::StatusCode::kUnimplemented, absl::StatusCode::kResourceExhausted});
  }
  const auto again = render();
  fuzz::require(text.ok() == again.ok() && (!text.ok() || *text == *again), "a template renders one text");
  return 0;
}
