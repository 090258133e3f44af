#include <bascule/sender/ranks/crew_packer.h>

#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

class CrewPacker final : public Packer {
 public:
  CrewPacker(Crew& crew, const SharedLayout& layout, kernels::ThreadPool& pool)
      : crew_(crew), layout_(layout), pool_(pool) {}

  bool enqueues() const override { return false; }
  bool makes_tables() const override { return true; }
  absl::Status reach(SlotMemory& memory) override { return crew_.show(*layout_, memory); }
  void forget(const SlotMemory& memory) override { crew_.forget(memory); }
  absl::Status check(const Packing&) override { return absl::OkStatus(); }
  absl::Status plan(const Packing&) override { return absl::OkStatus(); }
  absl::Status pack(const Packing&, SlotMemory& slot, bool want_digest, std::atomic<std::uint64_t>& bytes_done,
                    const SlotTable& table) override {
    bytes_done_ = &bytes_done;
    bytes_ = slot.bytes;
    table_ = want_digest ? table.totals : std::span<kernels::TileTotal>();
    return crew_.write(*layout_, slot, want_digest, pool_);
  }
  absl::Status digest(std::span<const std::byte>, bool, Stream, const SlotTable&) override {
    return failed_precondition("a sharded sender lends no slots");
  }
  absl::StatusOr<std::optional<Digest>> finish(Deadline deadline) override {
    BASCULE_ASSIGN(const std::optional<Digest> digest, crew_.finish(deadline, pool_, table_));
    bytes_done_->store(bytes_, std::memory_order_release);
    return digest;
  }

 private:
  Crew& crew_;
  const SharedLayout& layout_;
  kernels::ThreadPool& pool_;
  std::atomic<std::uint64_t>* bytes_done_ = nullptr;
  std::uint64_t bytes_ = 0;
  std::span<kernels::TileTotal> table_;
};

}  // namespace

std::unique_ptr<Packer> make_crew_packer(Crew& crew, const SharedLayout& layout, kernels::ThreadPool& pool) {
  return std::make_unique<CrewPacker>(crew, layout, pool);
}

}  // namespace bascule::inline v0
