// Cases of the fixtures and of tests/tools/compare-templates: {"template", "messages", "tools",
// "add_generation_prompt", "continue_final_message", "variables"}, of which all but the first may be missing.
#pragma once

#include <chrono>
#include <string>

#include <bascule/trainer_ref/chat/chat_template.h>
#include <bascule/trainer_ref/chat/final_message.h>

namespace bascule::ref {

// 2024-07-26 15:04:05.000678, local time, the same as in the scripts' strftime_now.
inline std::chrono::system_clock::time_point fixed_now() {
  std::tm local{};
  local.tm_year = 2024 - 1900;
  local.tm_mon = 6;
  local.tm_mday = 26;
  local.tm_hour = 15;
  local.tm_min = 4;
  local.tm_sec = 5;
  local.tm_isdst = -1;
  return std::chrono::system_clock::from_time_t(std::mktime(&local)) + std::chrono::microseconds(678);
}

inline absl::StatusOr<std::string> render_case(const ChatTemplate::Json& item) {
  using Json = ChatTemplate::Json;
  ChatTemplateOptions options;
  options.now = fixed_now;
  const auto parsed = ChatTemplate::parse(item.at("template").get<std::string>(), options);
  if (!parsed.ok()) return parsed.status();
  const Json messages = item.value("messages", Json::array()), tools = item.value("tools", Json());
  const Json variables = item.value("variables", Json::object());
  if (item.value("continue_final_message", false)) return render_unfinished(*parsed, messages, tools, variables);
  return parsed->render(messages, tools, item.value("add_generation_prompt", Json(false)).get<bool>(), variables);
}

}  // namespace bascule::ref
