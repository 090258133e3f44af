#include <bascule/trainer_ref/chat/loop.h>

#include <bascule/transport/status.h>

namespace bascule::ref::jinja {

absl::StatusOr<bool> Loop::has_next() {
  if (!ahead.empty()) return true;
  BASCULE_ASSIGN(std::optional<Value> item, iterator());
  if (item) ahead.push_back(*std::move(item));
  return !ahead.empty();
}

absl::StatusOr<std::optional<Value>> Loop::next() {
  BASCULE_ASSIGN(const bool has_one, has_next());
  if (!has_one) return std::nullopt;
  ++index0;
  previous = std::move(current);
  current = std::move(ahead.front());
  ahead.pop_front();
  return current;
}

absl::StatusOr<std::int64_t> Loop::length() {
  if (known_length) return *known_length;
  while (true) {
    BASCULE_ASSIGN(std::optional<Value> item, iterator());
    if (!item) break;
    ahead.push_back(*std::move(item));
  }
  known_length = index0 + 1 + static_cast<std::int64_t>(ahead.size());
  return *known_length;
}

absl::StatusOr<std::optional<Value>> loop_attribute(Loop& loop, std::string_view name) {
  if (name == "index") return Value::of(loop.index0 + 1);
  if (name == "index0") return Value::of(loop.index0);
  if (name == "first") return Value::of(loop.index0 == 0);
  if (name == "depth") return Value::of(std::int64_t{loop.depth0} + 1);
  if (name == "depth0") return Value::of(std::int64_t{loop.depth0});
  if (name == "previtem") return loop.index0 == 0 ? Value::undefined("there is no previous item") : loop.previous;
  if (name == "last" || name == "nextitem") {
    BASCULE_ASSIGN(const bool has_next, loop.has_next());
    if (name == "last") return Value::of(!has_next);
    return has_next ? loop.ahead.front() : Value::undefined("there is no next item");
  }
  if (name == "length" || name == "revindex" || name == "revindex0") {
    BASCULE_ASSIGN(const std::int64_t length, loop.length());
    return Value::of(name == "length" ? length : name == "revindex" ? length - loop.index0 : length - loop.index0 - 1);
  }
  return std::nullopt;
}

}  // namespace bascule::ref::jinja
