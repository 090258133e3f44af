// Metrics in Prometheus' text exposition format, version 0.0.4.
//
// Threads: one.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace bascule::ref {

inline constexpr std::string_view kExpositionType = "text/plain; version=0.0.4";

class Exposition {
 public:
  using Labels = std::initializer_list<std::pair<std::string_view, std::string_view>>;

  // `prefix` precedes each name.
  explicit Exposition(std::string prefix) : prefix_(std::move(prefix)) {}

  // A gauge goes up and down; a counter only grows, and its name ends with _total. Names have their unit.
  template <typename Number>
  void gauge(std::string_view name, std::string_view help, Number value) {
    family(name, "gauge", help);
    sample({}, value);
  }
  template <typename Number>
  void counter(std::string_view name, std::string_view help, Number value) {
    family(name, "counter", help);
    sample({}, value);
  }
  // One metric of many things: a family, then a sample for each, with labels that distinguish them. NaN is left out.
  void family(std::string_view name, std::string_view type, std::string_view help);
  template <typename Number>
  void sample(Labels labels, Number value) {
    if constexpr (std::is_floating_point_v<Number>)
      write(labels, static_cast<double>(value));
    else
      line(labels, std::to_string(value));
  }

  const std::string& text() const { return text_; }

 private:
  void write(Labels labels, double value);
  void line(Labels labels, std::string_view value);

  const std::string prefix_;
  std::string name_;  // of the last family
  std::string text_;
};

}  // namespace bascule::ref
