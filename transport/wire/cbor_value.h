// Reads CBOR in place: nothing is copied or built.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace bascule::inline v0 {

// One item within bytes that check_cbor() has accepted; the checks made there are not repeated. The bytes must outlive
// this object.
class CborValue {
 public:
  enum class Kind { kUnsigned, kNegative, kBytes, kText, kArray, kMap, kBoolean, kNull, kFloat };

  explicit CborValue(const std::uint8_t* at);  // where the item begins

  Kind kind() const { return kind_; }
  bool is_number() const { return kind_ == Kind::kUnsigned || kind_ == Kind::kNegative || kind_ == Kind::kFloat; }
  std::string shown() const;  // for error texts: a number or a bool as it is, otherwise the kind, such as "text"

  std::uint64_t number() const { return argument_; }  // kUnsigned
  std::int64_t negative() const { return -1 - static_cast<std::int64_t>(argument_); }
  double real() const;                            // the value of any number
  bool truth() const { return argument_ != 0; }   // kBoolean
  std::string_view text() const;                  // of kText or kBytes, unchanged
  std::size_t size() const { return argument_; }  // items of an array, pairs of a map

  // Where the first item of an array, or the first key of a map, begins. Each further item begins at the end() of the
  // one before.
  const std::uint8_t* first_at() const { return content_; }
  const std::uint8_t* end() const;
  std::span<const std::uint8_t> bytes() const { return {begin_, end()}; }  // the whole item, with its head

 private:
  const std::uint8_t* begin_;
  const std::uint8_t* content_;  // after the head
  std::uint64_t argument_ = 0;   // a number, a size, a float's bits
  Kind kind_ = Kind::kNull;
};

}  // namespace bascule::inline v0
