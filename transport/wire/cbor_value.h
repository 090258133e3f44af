// A look into CBOR where it lies: nothing is copied, and nothing is built of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace bascule::inline v0 {

// One item of bytes that check_cbor() has passed; nothing here looks for what that refuses. The bytes outlive it.
class CborValue {
 public:
  enum class Kind { kUnsigned, kNegative, kBytes, kText, kArray, kMap, kBoolean, kNull, kFloat };

  explicit CborValue(const std::uint8_t* at);  // where the item begins

  Kind kind() const { return kind_; }
  bool is_number() const { return kind_ == Kind::kUnsigned || kind_ == Kind::kNegative || kind_ == Kind::kFloat; }
  std::string shown() const;  // for texts: the number itself, "text", "array"

  std::uint64_t number() const { return argument_; }  // kUnsigned
  std::int64_t negative() const { return -1 - static_cast<std::int64_t>(argument_); }
  double real() const;                            // of any number
  bool truth() const { return argument_ != 0; }   // kBoolean
  std::string_view text() const;                  // kText, kBytes: as it stands there
  std::size_t size() const { return argument_; }  // items of an array, pairs of a map

  // Where the first item of an array lies, or the first key of a map. The next one lies at the end() of each.
  const std::uint8_t* first_at() const { return content_; }
  const std::uint8_t* end() const;
  std::span<const std::uint8_t> bytes() const { return {begin_, end()}; }  // all of the item, its head included

 private:
  const std::uint8_t* begin_;
  const std::uint8_t* content_;  // behind the head
  std::uint64_t argument_ = 0;   // a number, a size, a float's bits
  Kind kind_ = Kind::kNull;
};

}  // namespace bascule::inline v0
