#include <bascule/kernels/gather.h>

#include <bascule/kernels/element_writer.h>

namespace bascule::inline v0::kernels {

void gather(const Segment& segment, const std::byte* tensor, std::uint64_t begin, std::uint64_t end, std::byte* target,
            const Processor& processor) {
  const ElementWriter writer(segment, tensor, processor);
  write_bytes(size_of(segment.slot_dtype), begin, end, target,
              [&](std::uint64_t first, std::uint64_t last, std::byte* to) { writer.write(first, last, to); });
}

}  // namespace bascule::inline v0::kernels
