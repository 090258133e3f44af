// Feeds a safetensors file, which may be a slot's file.
//
//   the tensors of a header that is accepted lie one after the other and fill the file
//   a header written from them reads as the same tensors
//   a slot's file that is accepted has its stamp in the header, and a layout with the file's tensors
#include <bascule/schemes/memmap/slot_file.h>
#include <bascule/transport/safetensors.h>

#include "fuzz.h"

namespace bascule::fuzz {
namespace {

void comes_back(const SafetensorsHeader& header, std::uint64_t data_bytes) {
  std::vector<TensorSpec> specs;
  for (const SafetensorsHeader::Entry& entry : header.entries) specs.push_back(entry.spec);
  const auto prefix = safetensors_prefix(specs, header.metadata, 64);
  if (!prefix.ok()) return require_refusal(prefix.status());  // a type that Bascule reads only, or an empty name
  const std::string file = *prefix + std::string(data_bytes, '\0');
  const auto again = parse_safetensors(std::as_bytes(std::span(file)), "again");
  require(again.ok(), "a header that was written is accepted");
  require(again->data_offset % 64 == 0 && again->metadata == header.metadata, "the metadata come back");
  for (std::size_t i = 0; i < specs.size(); ++i)
    require(again->entries[i].spec == specs[i] && again->entries[i].bytes == header.entries[i].bytes,
            "the tensors come back in their order");
}

void read_slot_file(std::span<const std::byte> file) {
  const auto parsed = memmap::parse_slot_file(file, "file");
  if (!parsed.ok()) return require_refusal(parsed.status(), {absl::StatusCode::kFailedPrecondition});
  require(parsed->shape.bytes() == file.size(), "a slot's file is its header and the slot");
  require(parsed->shape.stamp_at < parsed->shape.data_offset, "the stamp is in the header");
  require(parsed->layout.bytes() == parsed->shape.data_bytes, "the layout fills the slot");
}

}  // namespace
}  // namespace bascule::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace bascule;
  const std::span file = std::as_bytes(std::span(data, size));
  fuzz::read_slot_file(file);
  const auto header = parse_safetensors(file, "file");
  if (!header.ok()) {
    fuzz::require_refusal(header.status());
    return 0;
  }
  std::uint64_t end = header->data_offset;
  for (const SafetensorsHeader::Entry& entry : header->entries) {
    fuzz::require(entry.offset == end, "there is no hole and no overlap");
    fuzz::require(entry.bytes == byte_count(entry.spec.dtype, entry.spec.shape), "a shape fits its bytes");
    const SafetensorsHeader::Entry* const found = header->find(entry.spec.name);
    fuzz::require(found == &entry, "each tensor is found by its name");
    end += entry.bytes;
  }
  fuzz::require(end == size, "the tensors fill the file");
  fuzz::comes_back(*header, size - header->data_offset);
  return 0;
}
