#include <bascule/transport/wire/message_writer.h>

#include <bascule/transport/utf8.h>

namespace bascule::inline v0 {

void MessageWriter::bytes(const char* key, const std::string& value) {
  map_[key] = Json::binary({value.begin(), value.end()});
}

void MessageWriter::bytes(const char* key, const std::optional<std::string>& value) {
  if (value) bytes(key, *value);
}

MessageWriter::Json MessageWriter::written(const std::string& text) {
  if (text.size() > kMostTextBytes) return written(shortened(text, kMostTextBytes));
  if (is_utf8(text)) return text;
  std::string ascii = text;
  for (char& c : ascii)
    if (static_cast<unsigned char>(c) >= 0x80) c = '?';
  return ascii;
}

MessageWriter::Json MessageWriter::written(DType dtype) { return std::string(name_of(dtype)); }

MessageWriter::Json MessageWriter::written(DigestMode mode) {
  return std::string(kDigestModes[static_cast<std::size_t>(mode)]);
}

// 16 bytes, in the order of to_hex().
MessageWriter::Json MessageWriter::written(const Digest& digest) {
  std::vector<std::uint8_t> bytes;
  for (const std::uint64_t word : {digest.high, digest.low})
    for (int shift = 56; shift >= 0; shift -= 8) bytes.push_back(static_cast<std::uint8_t>(word >> shift));
  return Json::binary(std::move(bytes));
}

MessageWriter::Json MessageWriter::written(const Layout& layout) {
  return written(LayoutParts{.tensors = {layout.tensors().begin(), layout.tensors().end()},
                             .aliases = {layout.aliases().begin(), layout.aliases().end()},
                             .bytes = layout.bytes()});
}

}  // namespace bascule::inline v0
