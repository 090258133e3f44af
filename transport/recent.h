// Recent: a table of what is remembered by name, as about workers that have left. It has a limit, since a peer may come
// under ever new names: for a new name beyond it, the name that was set longest ago is forgotten.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace bascule::inline v0 {

inline constexpr std::size_t kMostRemembered = 1024;

template <typename Value>
class Recent {
 public:
  // The value of `name`, which is the newest now; a new name has an empty one.
  Value& set(const std::string& name) {
    if (!entries_.contains(name) && entries_.size() >= kMostRemembered) entries_.erase(oldest());
    Entry& entry = entries_[name];
    entry.set = ++last_;
    return entry.value;
  }
  const Value* find(const std::string& name) const {
    const auto found = entries_.find(name);
    return found == entries_.end() ? nullptr : &found->second.value;
  }
  Value* find(const std::string& name) { return const_cast<Value*>(std::as_const(*this).find(name)); }
  void erase(const std::string& name) {
    if (!entries_.empty()) entries_.erase(name);
  }
  template <typename Visit>
  void for_each(Visit visit) const {  // by name
    for (const auto& [name, entry] : entries_) visit(name, entry.value);
  }

 private:
  struct Entry {
    std::uint64_t set = 0;  // by rising numbers
    Value value{};
  };
  auto oldest() const {
    return std::ranges::min_element(entries_, {}, [](const auto& entry) { return entry.second.set; });
  }

  std::map<std::string, Entry> entries_;
  std::uint64_t last_ = 0;
};

}  // namespace bascule::inline v0
