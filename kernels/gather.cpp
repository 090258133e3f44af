#include <bascule/kernels/gather.h>

#include <bascule/kernels/box_runs.h>
#include <bascule/kernels/element_writer.h>

namespace bascule::inline v0::kernels {

void gather(const Segment& segment, const std::byte* tensor, std::uint64_t begin, std::uint64_t end, std::byte* target,
            const Processor& processor) {
  const ElementWriter writer(segment, tensor, processor);
  write_bytes(size_of(segment.slot_dtype), begin, end, target,
              [&](std::uint64_t first, std::uint64_t last, std::byte* to) { writer.write(first, last, to); });
}

void gather_box(const Segment& box, const std::byte* tensor, std::uint64_t begin, std::uint64_t end, std::byte* target,
                const Processor& processor) {
  const ElementWriter writer(box, tensor, processor);
  const BoxRuns runs(box);
  const std::uint64_t element_bytes = size_of(box.slot_dtype);
  runs.for_each(begin, end, [&](const BoxRuns::Part& part) {
    std::byte* const to = target + (part.begin - begin);
    if (part.is_whole && runs.are_runs_of_the_tensor())
      return writer.write_run(tensor + part.tensor_offset, runs.elements(), to);
    write_bytes(element_bytes, part.box_byte, part.box_byte + (part.end - part.begin), to,
                [&](std::uint64_t first, std::uint64_t last, std::byte* some) { writer.write(first, last, some); });
  });
}

}  // namespace bascule::inline v0::kernels
