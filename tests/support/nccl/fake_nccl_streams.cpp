// The streams of the fake NCCL, and the broadcasts on them.
#include "support/nccl/fake_nccl_state.h"

#include <cstring>
#include <utility>

#include <bascule/transport/status.h>

namespace bascule::test {

void FakeNccl::State::run() {
  for (bool moved = true; moved;) {
    moved = false;
    for (Line& line : lines) moved = advance(line) || moved;
  }
  changed.notify_all();
}

bool FakeNccl::State::advance(Line& line) {
  if (line.stalled || line.dead || line.work.empty()) return false;
  const Work work = line.work.front();
  if (work.run) {
    work.run();
  } else if (!work.broadcast->over && !carry_out(*work.broadcast)) {
    return false;
  }
  line.work.pop_front();
  ++line.done;
  return true;
}

bool FakeNccl::State::is_at_head(const Broadcast& broadcast) {
  const Line& line = *broadcast.line;
  return !line.work.empty() && line.work.front().broadcast.get() == &broadcast;
}

bool FakeNccl::State::carry_out(const Broadcast& one) {
  const Group& group = *one.comm->group;
  std::vector<Broadcast*> all;
  for (const auto& [rank, comm] : group.members) {
    const auto found = comm->posted.find(one.number);
    if (found == comm->posted.end()) return false;
    Broadcast& other = *found->second;
    if (other.never || other.over || other.line->stalled || other.line->dead || !is_at_head(other)) return false;
    all.push_back(&other);
  }
  const Broadcast& root = *all[static_cast<std::size_t>(one.root)];  // all members are there, in the order of ranks
  for (const Broadcast* other : all) {
    if (other->bytes == root.bytes && other->root == one.root) continue;
    for (const auto& [rank, comm] : group.members) comm->error = Code::kInvalidUsage;
    for (Broadcast* mine : all) mine->never = true;
    return false;
  }
  for (Broadcast* other : all) {
    if (other->receive != root.send) std::memmove(other->receive, root.send, root.bytes);
    other->over = true;
  }
  for (const auto& [rank, comm] : group.members) comm->posted.erase(one.number);
  ++broadcasts;
  return true;
}

void FakeNccl::State::end_broadcasts(Comm& comm) {
  comm.posting.reset();
  for (auto& [number, broadcast] : comm.posted) {
    if (is_at_head(*broadcast)) write_half(*broadcast);
    broadcast->over = true;
    broadcast->line->stalled = broadcast->line->dead = false;  // an abort ends kernels that are stuck
  }
  comm.posted.clear();
  run();
}

void FakeNccl::State::write_half(const Broadcast& broadcast) {
  const auto root = broadcast.comm->group->members.find(broadcast.root);
  const std::byte* from = nullptr;
  if (root != broadcast.comm->group->members.end()) {
    const auto posted = root->second->posted.find(broadcast.number);
    if (posted != root->second->posted.end() && !posted->second->over && posted->second->bytes >= broadcast.bytes)
      from = posted->second->send;
  }
  if (from == nullptr) {
    std::memset(broadcast.receive, 0xa5, broadcast.bytes / 2);
  } else if (from != broadcast.receive) {
    std::memmove(broadcast.receive, from, broadcast.bytes / 2);
  }
}

void FakeNccl::State::put(Line& line, Work work) {
  line.work.push_back(std::move(work));
  ++line.given;
  run();
}

namespace {

FakeNccl::State& state_of_fake() { return FakeNccl::instance().state(); }

class FakeMark final : public DeviceMark {
 public:
  int device() const override { return 0; }
  absl::Status record(Stream stream) override {
    FakeNccl::State& state = state_of_fake();
    const std::lock_guard lock(state.mutex);
    line_ = &state.line_of(stream);
    state.check_order(*line_, "a mark");
    point_ = line_->given;
    return absl::OkStatus();
  }
  absl::Status wait(Deadline deadline) const override {
    FakeNccl::State& state = state_of_fake();
    std::unique_lock lock(state.mutex);
    if (state.changed.wait_until(lock, deadline.at(), [&] { return line_ == nullptr || line_->done >= point_; }))
      return absl::OkStatus();
    return deadline_exceeded("fake nccl: the stream did not reach the mark in time");
  }

 private:
  const fake_nccl::Line* line_ = nullptr;
  std::uint64_t point_ = 0;
};

}  // namespace

Stream FakeNccl::make_stream() {
  const std::lock_guard lock(state_->mutex);
  return reinterpret_cast<Stream>(&state_->lines.emplace_back());
}

void FakeNccl::give(Stream stream, std::function<void()> work) {
  const std::lock_guard lock(state_->mutex);
  fake_nccl::Line& line = state_->line_of(stream);
  state_->check_order(line, "a kernel");
  state_->put(line, {std::move(work), nullptr});
}

std::unique_ptr<DeviceMark> FakeNccl::make_mark() { return std::make_unique<FakeMark>(); }

std::shared_ptr<DeviceMark> FakeNccl::mark(Stream stream) {
  auto mark = std::make_shared<FakeMark>();
  mark->record(stream).IgnoreError();  // it never fails
  return mark;
}

void FakeNccl::stall(Stream stream) {
  const std::lock_guard lock(state_->mutex);
  state_->line_of(stream).stalled = true;
}

void FakeNccl::go_on(Stream stream) {
  const std::lock_guard lock(state_->mutex);
  state_->line_of(stream).stalled = false;
  state_->run();
}

void FakeNccl::kill(Stream stream) {
  const std::lock_guard lock(state_->mutex);
  state_->line_of(stream).dead = true;
}

}  // namespace bascule::test
