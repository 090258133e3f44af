#include <bascule/trainer_ref/http/exposition.h>

#include <array>
#include <charconv>
#include <cmath>

#include "absl/strings/str_replace.h"
#include <bascule/transport/status.h>

namespace bascule::ref {

void Exposition::family(std::string_view name, std::string_view type, std::string_view help) {
  name_ = cat(prefix_, name);
  text_ += cat("# HELP ", name_, " ", help, "\n# TYPE ", name_, " ", type, "\n");
}

void Exposition::write(Labels labels, double value) {
  if (std::isnan(value)) return;
  if (std::isinf(value)) return line(labels, value > 0 ? "+Inf" : "-Inf");
  std::array<char, 32> digits{};
  const char* end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  line(labels, {digits.data(), end});
}

void Exposition::line(Labels labels, std::string_view value) {
  text_ += name_;
  char before = '{';
  for (const auto& [label, content] : labels) {
    text_ += cat(std::string_view(&before, 1), label, "=\"",
                 absl::StrReplaceAll(std::string(content), {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}}), "\"");
    before = ',';
  }
  text_ += cat(before == ',' ? "} " : " ", value, "\n");
}

}  // namespace bascule::ref
