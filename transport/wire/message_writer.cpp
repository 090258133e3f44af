#include <bascule/transport/wire/message_writer.h>

#include <bascule/transport/utf8.h>

namespace bascule::inline v0 {

void MessageWriter::head(Bytes& to, Major major, std::uint64_t argument) {
  constexpr std::uint8_t kOneByte = 24;  // the argument follows; then in 2, 4 or 8 bytes
  const auto first = static_cast<std::uint8_t>(major << 5);
  if (argument < kOneByte) return to.push_back(static_cast<std::uint8_t>(first | argument));
  const int width = argument >> 8 == 0 ? 0 : argument >> 16 == 0 ? 1 : argument >> 32 == 0 ? 2 : 3;
  to.push_back(static_cast<std::uint8_t>(first | (kOneByte + width)));
  for (int shift = 8 * (1 << width) - 8; shift >= 0; shift -= 8)
    to.push_back(static_cast<std::uint8_t>(argument >> shift));
}

void MessageWriter::string(Bytes& to, Major major, std::string_view bytes) {
  head(to, major, bytes.size());
  const auto* const first = reinterpret_cast<const std::uint8_t*>(bytes.data());
  to.insert(to.end(), first, first + bytes.size());
}

MessageWriter::Added MessageWriter::add(std::string_view key) {
  ++to_[map_];
  string(to_, kText, key);
  return {};
}

void MessageWriter::bytes(const char* key, const std::string& value) {
  add(key);
  string(to_, kBytes, value);
}

void MessageWriter::bytes(const char* key, const std::optional<std::string>& value) {
  if (value) bytes(key, *value);
}

void MessageWriter::constant(const char* key, const char* text) {
  add(key);
  string(to_, kText, text);
}

void MessageWriter::write(Bytes& to, double value, Added) {
  constexpr std::uint8_t kDouble = 0xfb;
  const auto bits = std::bit_cast<std::uint64_t>(value);
  to.push_back(kDouble);
  for (int shift = 56; shift >= 0; shift -= 8) to.push_back(static_cast<std::uint8_t>(bits >> shift));
}

void MessageWriter::write(Bytes& to, const std::string& text, Added) {
  if (text.size() > kMostTextBytes) return write(to, shortened(text, kMostTextBytes), Added());
  string(to, kText, text);
  if (is_utf8(text)) return;
  for (auto byte = to.end() - static_cast<std::ptrdiff_t>(text.size()); byte != to.end(); ++byte)
    if (*byte >= 0x80) *byte = '?';
}

void MessageWriter::write(Bytes& to, DType dtype, Added) { string(to, kText, name_of(dtype)); }

void MessageWriter::write(Bytes& to, DigestMode mode, Added) {
  string(to, kText, kDigestModes[static_cast<std::size_t>(mode)]);
}

// 16 bytes, in the order of to_hex().
void MessageWriter::write(Bytes& to, const Digest& digest, Added) {
  head(to, kBytes, 16);
  for (const std::uint64_t word : {digest.high, digest.low})
    for (int shift = 56; shift >= 0; shift -= 8) to.push_back(static_cast<std::uint8_t>(word >> shift));
}

void MessageWriter::write(Bytes& to, const std::map<std::string, std::string>& texts, Added) {
  head(to, kMap, texts.size());
  for (const auto& [key, text] : texts) {
    string(to, kText, key);
    string(to, kText, text);
  }
}

void MessageWriter::write(Bytes& to, const Layout& layout, Added) {
  write(to,
        PartsOfLayout{.tensors = layout.tensors(),
                      .aliases = layout.aliases(),
                      .bytes = layout.bytes(),
                      .description = layout.description(),
                      .division = layout.division()},
        Added());
}

}  // namespace bascule::inline v0
