// A user's own scheme, built against the installed headers: slots are memfds, and a worker reads a version out of the
// sender's memfd, by its path in /proc, into its own memory.
#pragma once

#include <bascule/transport/scheme.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace consumer {

inline absl::Status failed(const std::string& what) { return absl::ErrnoToStatus(errno, "pull: " + what); }

class PullSender : public bascule::SenderTransport {
 public:
  absl::StatusOr<bascule::SlotMemory> make_slot(bascule::SlotId, const bascule::Layout& layout, int) override {
    bascule::SlotMemory memory;
    memory.descriptor = bascule::UniqueFd(::memfd_create("pull", MFD_CLOEXEC));
    memory.bytes = layout.bytes();
    memory.description = "memfd";
    if (::ftruncate(memory.descriptor.get(), static_cast<off_t>(layout.bytes())) != 0) return failed("make a slot");
    auto mapping = bascule::Mapping::map(memory.descriptor.get(), layout.bytes(), bascule::Access::kReadWrite);
    if (!mapping.ok()) return mapping.status();
    memory.mapping = *std::move(mapping);
    return memory;
  }
  absl::StatusOr<bascule::Offer> offer(bascule::WorkerId, bascule::ConnectionKind,
                                       std::span<const bascule::OfferedSlot> slots) override {
    std::ostringstream paths;
    for (const bascule::OfferedSlot& slot : slots)
      paths << "/proc/" << ::getpid() << "/fd/" << slot.memory->descriptor.get() << '\n';
    return bascule::Offer{.bytes = paths.str(), .descriptors = {}};
  }
};

class PullReceiver : public bascule::ReceiverTransport {
 public:
  absl::Status accept(bascule::ReceivedOffer offer) override {
    std::istringstream paths(offer.bytes);
    for (const bascule::SlotId slot : offer.slots) {
      std::string path;
      std::getline(paths, path);
      bascule::UniqueFd opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
      if (!opened) return failed("open " + path);
      slots_.insert_or_assign(slot, std::move(opened));
    }
    return absl::OkStatus();
  }
  absl::StatusOr<bascule::SlotView> prepare(const bascule::Publication& publication, bascule::Deadline) override {
    Own* to = nullptr;
    for (Own& own : own_)
      if (!own.in_use) to = &own;
    if (to == nullptr) return absl::ResourceExhaustedError("pull: two versions are held already");
    if (to->bytes == nullptr)
      to->bytes.reset(static_cast<std::byte*>(::operator new(publication.bytes, std::align_val_t(64))));
    for (std::uint64_t done = 0; done < publication.bytes;) {
      const ssize_t read = ::pread(slots_.at(publication.slot).get(), to->bytes.get() + done, publication.bytes - done,
                                   static_cast<off_t>(done));
      if (read <= 0) return failed("read a slot");
      done += static_cast<std::uint64_t>(read);
    }
    to->in_use = true;
    const auto number = static_cast<std::uint32_t>(to - own_.data());
    return bascule::SlotView{.slot = {publication.slot.epoch, bascule::kOwnMemory + number},
                             .bytes = {to->bytes.get(), publication.bytes}};
  }
  void end_read(bascule::SlotId slot) override { own_.at(slot.index - bascule::kOwnMemory).in_use = false; }
  void unmap(bascule::SlotId slot) override { slots_.erase(slot); }

 private:
  struct Free {
    void operator()(std::byte* bytes) const { ::operator delete(bytes, std::align_val_t(64)); }
  };
  struct Own {
    bool in_use = false;
    std::unique_ptr<std::byte, Free> bytes;
  };
  std::map<bascule::SlotId, bascule::UniqueFd> slots_;
  std::vector<Own> own_ = std::vector<Own>(2);
};

}  // namespace consumer
