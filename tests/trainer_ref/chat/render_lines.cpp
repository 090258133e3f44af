// Renders the case on each line of stdin, as JSON, and writes {"text"} or {"error", "code"} to stdout, for
// tests/tools/compare-templates.
#include <iostream>

#include "cases.h"
#include <bascule/transport/status.h>

int main() {
  using namespace bascule;
  for (std::string line; std::getline(std::cin, line);) {
    const auto text = ref::render_case(ref::ChatTemplate::Json::parse(line));
    nlohmann::json answer;
    if (text.ok()) {
      answer["text"] = *text;
    } else {
      answer["code"] = absl::StatusCodeToString(text.status().code());
      answer["error"] = message_of(text.status());
    }
    std::cout << answer.dump() << std::endl;
  }
}
