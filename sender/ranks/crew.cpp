#include <bascule/sender/ranks/crew.h>

#include <unistd.h>

#include <algorithm>
#include <utility>

#include <bascule/transport/endpoint.h>
#include <bascule/transport/scheme.h>
#include <bascule/transport/shards.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

using Kind = RankMessage::Kind;

// What one rank stated, as plan_shards() takes it.
struct Stated {
  std::vector<std::int64_t> numbers;
  std::vector<ShardBox> boxes;
};

absl::StatusOr<Stated> read_boxes(std::span<const TensorSpec> specs, std::vector<std::int64_t> numbers) {
  Stated stated{.numbers = std::move(numbers), .boxes = {}};
  for (std::size_t at = 0; at < stated.numbers.size();) {
    const std::int64_t tensor = stated.numbers[at++];
    if (tensor < 0 || static_cast<std::size_t>(tensor) >= specs.size())
      return invalid_argument("a shard names tensor number ", tensor, " of ", specs.size());
    const std::size_t dimensions = specs[static_cast<std::size_t>(tensor)].shape.size();
    if (stated.numbers.size() - at < 2 * dimensions) return invalid_argument("its list of shards ends early");
    const std::span<const std::int64_t> rest = std::span(stated.numbers).subspan(at);
    stated.boxes.push_back({.tensor = static_cast<std::uint32_t>(tensor),
                            .offset = rest.first(dimensions),
                            .shape = rest.subspan(dimensions, dimensions)});
    at += 2 * dimensions;
  }
  return stated;
}

// Which region holds which box: each rank's region has the boxes that it owns.
Division divide(std::span<const TensorSpec> specs, std::span<const std::vector<ShardBox>> boxes, const ShardPlan& plan,
                std::uint64_t granule) {
  std::vector<std::vector<CutBox>> of_tensor(specs.size());
  for (std::uint32_t rank = 0; rank < boxes.size(); ++rank)
    for (const std::uint32_t number : plan.ranks[rank].boxes) {
      const ShardBox& box = boxes[rank][number];
      of_tensor[box.tensor].push_back({.region = rank,
                                       .offset = {box.offset.begin(), box.offset.end()},
                                       .shape = {box.shape.begin(), box.shape.end()}});
    }
  Division division{.regions = static_cast<std::uint32_t>(boxes.size()), .granule = granule};
  std::map<Cut, std::uint32_t> numbers;
  for (std::size_t t = 0; t < specs.size(); ++t) {
    const std::vector<std::int64_t>& shape = specs[t].shape;
    if (of_tensor[t].empty())  // a tensor without elements
      of_tensor[t].push_back({.region = 0, .offset = std::vector<std::int64_t>(shape.size(), 0), .shape = shape});
    Cut cut = Cut::of(specs[t], std::move(of_tensor[t]));
    const auto [known, is_new] = numbers.try_emplace(cut, static_cast<std::uint32_t>(division.cuts.size()));
    if (is_new) division.cuts.push_back(std::move(cut));
    division.cut_of.push_back(known->second);
  }
  return division;
}

// The first difference between rank 0's tensors and another rank's.
absl::Status same_tensors(const std::vector<TensorSpec>& here, const std::vector<TensorSpec>& there, std::size_t rank) {
  const std::size_t common = std::min(here.size(), there.size());
  for (std::size_t t = 0; t < common; ++t)
    if (here[t] != there[t])
      return invalid_argument("tensor number ", t, " is ", to_string(here[t]), " on rank 0 and ", to_string(there[t]),
                              " on rank ", rank, "; all ranks must give the same tensors in the same order");
  if (here.size() == there.size()) return absl::OkStatus();
  return invalid_argument("rank 0 gives ", here.size(), " tensors and rank ", rank, " gives ", there.size(), " (",
                          to_string((here.size() > there.size() ? here : there)[common]),
                          " is the first that only one of them has); all ranks must give the same tensors");
}

// Returns the sum of `totals`, and copies them to `to` unless that is empty. A model of 16 GB has 4 MB of them.
kernels::TileTotal add_up(std::span<const kernels::TileTotal> totals, std::span<kernels::TileTotal> to,
                          kernels::ThreadPool& pool) {
  constexpr std::size_t kAtATime = 8192;
  std::vector<kernels::TileTotal> sums((totals.size() + kAtATime - 1) / kAtATime);
  pool.run(sums.size(), [&](std::size_t task) {
    const std::size_t begin = task * kAtATime, end = std::min(begin + kAtATime, totals.size());
    for (std::size_t i = begin; i < end; ++i) {
      sums[task].add(totals[i]);
      if (!to.empty()) to[i] = totals[i];
    }
  });
  kernels::TileTotal total;
  for (const kernels::TileTotal& sum : sums) total.add(sum);
  return total;
}

}  // namespace

absl::Status check_takes_ranks(const Scheme& scheme, const Endpoint& endpoint) {
  if ((!scheme.many_writers && scheme.region_granule == 0) || endpoint.over_tcp())
    return unimplemented(
        "several ranks write one version, which needs memory that workers reach on this host: expected an endpoint ",
        "such as shm:///tmp/run, or cuda-ipc:///tmp/run for tensors on GPUs, found ", scheme.name,
        endpoint.over_tcp() ? " over TCP" : "", "; or gather the tensors and send them from one rank");
  if (endpoint.slots == 1)
    return invalid_argument("slots=1: the parameters of one process live in the slot; use slots=2 with several ranks");
  return absl::OkStatus();
}

absl::Status check_ranks(const SenderOptions& options, const Scheme& scheme, const Endpoint& endpoint) {
  if (options.ranks == 0 || options.ranks > kMostShardRanks || options.rank >= options.ranks)
    return invalid_argument("expected 1 to ", kMostShardRanks, " ranks, and a rank below that number; found rank ",
                            options.rank, " of ", options.ranks);
  return options.ranks > 1 ? check_takes_ranks(scheme, endpoint) : absl::OkStatus();
}

std::string Crew::name_of_rank(std::size_t rank) const { return cat("rank ", rank, " (pid ", members_[rank].pid, ")"); }

// ---- joining ----

absl::StatusOr<ProcessFd> Crew::admit(const RankHello& hello) {
  const std::lock_guard lock(mutex_);
  if (hello.protocol != kProtocol)
    return failed_precondition("rank ", hello.rank, " uses protocol ", hello.protocol, ", expected ", kProtocol,
                               "; run the same version of Bascule on all ranks");
  if (hello.ranks != ranks())
    return failed_precondition("rank ", hello.rank, " (pid ", hello.pid, ") says that there are ", hello.ranks,
                               " ranks, and rank 0 says ", ranks(), "; give all ranks the same number");
  if (!lost_.ok() || (met_ && !members_[hello.rank].line))
    return failed_precondition("rank ", hello.rank, " (pid ", hello.pid, met_ ? ") comes alone: " : ") is too late: ",
                               lost_.ok() ? "it was lost" : message_of(lost_),
                               "; one rank cannot join later, so start all ranks of the trainer again");
  Member& member = members_[hello.rank];
  if (member.line)
    return failed_precondition("rank ", hello.rank, " has joined already, as pid ", member.pid,
                               "; give each process its own rank, or start all ranks of the trainer again");
  BASCULE_ASSIGN(auto ends, RankLine::make_ends());
  member.pid = hello.pid;
  member.line.emplace(std::move(ends.first));
  return std::move(ends.second);
}

std::vector<RankStatus> Crew::status() {
  const std::lock_guard lock(mutex_);
  std::vector<RankStatus> status;
  for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
    const Member& member = members_[rank];
    const bool here = rank == 0 || member.line;
    status.push_back({.rank = rank,
                      .pid = rank == 0 ? ::getpid() : member.pid,
                      .state = here              ? "joined"
                               : member.pid != 0 ? "lost"
                                                 : "awaited",
                      .bytes = member.bytes});
  }
  return status;
}

absl::Status Crew::wait_joined(Deadline deadline) {
  while (true) {
    std::string missing;
    {
      const std::lock_guard lock(mutex_);
      for (std::size_t rank = 1; rank < members_.size(); ++rank)
        if (!members_[rank].line) absl::StrAppend(&missing, missing.empty() ? "" : ", ", rank);
    }
    if (missing.empty()) return absl::OkStatus();
    if (deadline.passed())
      return deadline_exceeded("of ", ranks(), " ranks these have not joined: ", missing,
                               "; every rank must call register_shards() with the same endpoint");
    if (interrupted_ && interrupted_()) return absl::CancelledError("interrupted while other ranks were awaited");
    absl::SleepFor(std::min(absl::Milliseconds(20), std::max(deadline.left(), absl::ZeroDuration())));
  }
}

// It is called once: after an error, no rank can send.
absl::Status Crew::meet(std::unique_ptr<ShardSource> source, const std::string& description, Deadline deadline,
                        const std::function<absl::Status()>& use) {
  if (held_ || !lost_.ok())
    return failed_precondition("register_shards was called before, and failed; make a new sender on all ranks");
  absl::Status fit = all_fit(std::move(source), description, deadline, use);
  return fit.ok() || !lost_.ok() ? fit : end(std::move(fit));
}

absl::Status Crew::all_fit(std::unique_ptr<ShardSource> source, const std::string& description, Deadline deadline,
                           const std::function<absl::Status()>& use) {
  absl::StatusOr<HeldShards> held = HeldShards::make(std::move(source), scheme_);
  if (!held.ok()) return annotate(held.status(), "rank 0");
  held_.emplace(*std::move(held));
  BASCULE_TRY(wait_joined(deadline));
  BASCULE_TRY(hear_all(Kind::kShards, deadline, "stated its shards", Late::kReported));
  const std::vector<TensorSpec> specs = held_->specs();
  const absl::StatusOr<ShardPlan> plan = [&]() -> absl::StatusOr<ShardPlan> {
    std::vector<Stated> stated;  // the boxes point into it
    std::vector<std::vector<ShardBox>> boxes(members_.size());
    for (std::size_t rank = 0; rank < members_.size(); ++rank) {
      if (rank > 0) {
        const RankMessage& came = *members_[rank].came;
        if (came.status.code != 0) return annotate(received(came.status), cat("rank ", rank));
        BASCULE_TRY(same_tensors(specs, came.specs, rank));
        if (came.description != description)
          return invalid_argument("rank ", rank, " gives another description than rank 0");
      }
      absl::StatusOr<Stated> read =
          read_boxes(specs, rank > 0 ? std::move(members_[rank].came->numbers) : held_->numbers());
      if (!read.ok()) return annotate(read.status(), cat("rank ", rank));
      stated.push_back(*std::move(read));
    }
    for (std::size_t rank = 0; rank < boxes.size(); ++rank) boxes[rank] = std::move(stated[rank].boxes);
    absl::StatusOr<ShardPlan> fits = plan_shards(specs, boxes);
    if (fits.ok() && scheme_.region_granule > 0) division_ = divide(specs, boxes, *fits, scheme_.region_granule);
    if (fits.ok()) BASCULE_TRY(use());
    return fits;
  }();
  if (plan.ok()) owned_ = plan->ranks.front().boxes;
  for (std::size_t rank = 1; rank < members_.size(); ++rank) {
    if (members_[rank].came->status.code != 0) continue;  // its call has ended
    RankMessage message(Kind::kPlan);
    message.status = sent(plan.status());
    if (plan.ok()) message.numbers.assign(plan->ranks[rank].boxes.begin(), plan->ranks[rank].boxes.end());
    BASCULE_TRY(say(rank, name_of(message), to_bytes(message)));
  }
  const std::lock_guard lock(mutex_);
  met_ = plan.ok();
  for (std::size_t rank = 0; met_ && rank < members_.size(); ++rank) members_[rank].bytes = plan->ranks[rank].bytes;
  return plan.status();
}

// ---- messages ----

absl::Status Crew::lose(std::size_t rank, const absl::Status& why) {
  return end(absl::Status(why.code(), cat(name_of_rank(rank), " is lost: ", message_of(why))));
}

absl::Status Crew::end(absl::Status why) {
  const std::lock_guard lock(mutex_);
  lost_ = std::move(why);
  RankMessage message(Kind::kReport);
  message.report = sent(absl::StatusOr<SendReport>(lost_));
  const std::string bytes = to_bytes(message);
  for (Member& member : members_) {
    if (!member.line) continue;
    // A rank that waits reads it at once; another finds it at its next call.
    member.line->write(bytes, Deadline(absl::ZeroDuration())).IgnoreError();
    member.line.reset();
  }
  return lost_;
}

absl::Status Crew::say(std::size_t rank, std::string_view name, std::string_view bytes,
                       std::span<const int> descriptors) {
  if (!lost_.ok()) return lost_;
  if (trace_) trace_(cat("to rank ", rank, ": ", name));
  const absl::Status written = members_[rank].line->write(bytes, Deadline(timeout_), descriptors);
  return written.ok() ? written : lose(rank, written);
}

absl::Status Crew::say_to_all(const RankMessage& message, std::span<const int> descriptors) {
  const std::string bytes = to_bytes(message);
  for (std::size_t rank = 1; rank < members_.size(); ++rank)
    BASCULE_TRY(say(rank, name_of(message), bytes, descriptors));
  return lost_;
}

absl::Status Crew::hear_all(Kind kind, Deadline deadline, std::string_view what, Late late) {
  BASCULE_TRY(lost_);
  std::vector<RankLine*> waited(members_.size());
  for (std::size_t rank = 1; rank < members_.size(); ++rank) waited[rank] = &*members_[rank].line;
  std::size_t unawaited = 0;
  while (std::ranges::any_of(waited, [](const RankLine* line) { return line != nullptr; })) {
    const absl::StatusOr<std::vector<std::size_t>> ready = wait_readable(waited, deadline, interrupted_);
    if (!ready.ok()) {
      std::string missing;
      std::size_t last = 0;
      for (std::size_t rank = 1; rank < waited.size(); ++rank) {
        if (waited[rank] == nullptr) continue;
        absl::StrAppend(&missing, missing.empty() ? "" : ", ", name_of_rank(rank));
        if (kind == Kind::kReady) members_[rank].missed.push_back(step_);
        last = rank;
      }
      const absl::Status why(ready.status().code(), cat(missing, " has not ", what, ": ", message_of(ready.status())));
      return late == Late::kLost ? lose(last, why) : why;
    }
    for (const std::size_t rank : *ready) {
      absl::StatusOr<RankLine::Frame> frame = waited[rank]->read(Deadline(timeout_));
      if (!frame.ok()) return lose(rank, frame.status());
      absl::StatusOr<RankMessage> message = parse_rank_message(frame->bytes);
      if (!message.ok()) return lose(rank, message.status());
      if (trace_) trace_(cat("from rank ", rank, ": ", name_of(*message)));
      if (message->kind == Kind::kReady && has_missed(members_[rank], message->step)) continue;
      // A rank whose call has ended without it, because it came late, may have begun another one.
      if (message->kind == Kind::kReady) members_[rank].call = message->number;
      if (message->kind != kind) {
        if (message->kind == Kind::kReady && ++unawaited < kMostUnawaitedMessages) continue;
        return lose(rank, invalid_argument("it broke the protocol: expected ", name_of(RankMessage(kind)), ", found ",
                                           name_of(*message)));
      }
      members_[rank].came = *std::move(message);
      members_[rank].descriptors = std::move(frame->descriptors);
      waited[rank] = nullptr;
    }
  }
  return absl::OkStatus();
}

// ---- a send ----

bool Crew::has_missed(Member& member, std::uint64_t step) {
  const auto missed = std::ranges::find(member.missed, step);
  const bool found = missed != member.missed.end();
  member.missed.erase(member.missed.begin(), found ? missed + 1 : missed);
  return found;
}

absl::Status Crew::gather(const std::string& call, std::uint64_t step) {
  step_ = step;
  BASCULE_TRY(hear_all(Kind::kReady, Deadline(timeout_), cat("called ", call, " for step ", step), Late::kReported));
  std::string different;
  for (std::size_t rank = 1; rank < members_.size(); ++rank) {
    const RankMessage& came = *members_[rank].came;
    if (came.call != call || came.step != step)
      absl::StrAppend(&different, different.empty() ? "" : ", ", "rank ", rank, " calls ",
                      absl::string_view(came.call.data(), came.call.size()), " for step ", came.step);
  }
  if (different.empty()) return absl::OkStatus();
  return failed_precondition("the ranks are not at the same step: rank 0 calls ", call, " for step ", step, ", ",
                             different, "; nothing was sent");
}

absl::Status Crew::plan_packing(const Layout& layout) {
  if (layout_ == layout) return absl::OkStatus();
  if (!division_) {
    BASCULE_ASSIGN(packing_, ShardPacking::make(layout, *held_, owned_));
  } else {
    if (!region_) {
      BASCULE_ASSIGN(region_, RegionPacking::make(held_->device()));
    }
    BASCULE_TRY(region_->plan(layout, 0, *held_, owned_));
  }
  layout_ = layout;
  return absl::OkStatus();
}

absl::Status Crew::show(const Layout& layout, SlotMemory& memory) {
  BASCULE_TRY(plan_packing(layout));
  Shown shown{.number = next_slot_++};
  absl::Status taken = show(layout, memory, shown);
  if (taken.ok()) {
    shown_.insert_or_assign(memory.data(), std::move(shown));
  } else if (lost_.ok()) {
    say_to_all(RankMessage(Kind::kForget, shown.number)).IgnoreError();  // the next send makes it again
  }
  return taken;
}

absl::Status Crew::show(const Layout& layout, SlotMemory& memory, Shown& shown) {
  BASCULE_TRY(show_to_write(layout, memory, shown));
  // A late rank would map the slot when it is sealed, which fails.
  BASCULE_TRY(hear_all(Kind::kMapped, Deadline(timeout_), "mapped a slot", Late::kLost));
  for (std::size_t rank = 1; rank < members_.size(); ++rank)
    BASCULE_TRY(annotate(received(members_[rank].came->status),
                         cat(name_of_rank(rank), division_ ? " cannot make its region" : " cannot map a slot")));
  return division_ ? take_regions(memory) : absl::OkStatus();
}

absl::Status Crew::show_to_write(const Layout& layout, SlotMemory& memory, Shown& shown) {
  BASCULE_ASSIGN(shown.table, SharedTable::make(layout.bytes()));
  std::vector<int> descriptors;
  if (division_) {
    BASCULE_ASSIGN(shown.on_device, region_->reach(*shown.table));
  } else {
    packing_->mark(*shown.table);
    descriptors.push_back(memory.descriptor.get());
  }
  descriptors.push_back(shown.table->descriptor());
  RankMessage message(Kind::kSlot, shown.number);
  message.layout = layout;
  message.bytes = memory.bytes;
  message.data_offset = memory.data_offset;
  return say_to_all(message, descriptors);
}

absl::Status Crew::take_regions(SlotMemory& memory) {
  for (std::size_t rank = 1; rank < members_.size(); ++rank) {
    Member& member = members_[rank];
    const bool has_bytes = layout_->region_borders()[rank] < layout_->region_borders()[rank + 1];
    if (member.descriptors.size() != (has_bytes ? 1 : 0))
      return lose(rank, invalid_argument("it gave ", member.descriptors.size(), " descriptors for its region"));
    memory.others.push_back({.descriptor = has_bytes ? ProcessFd(std::move(member.descriptors.front())) : ProcessFd(),
                             .place = std::exchange(member.came->description, {})});
    member.descriptors.clear();
  }
  return absl::OkStatus();
}

Crew::Shown* Crew::find(const SlotMemory& memory) {
  const auto found = shown_.find(memory.data());
  return found == shown_.end() ? nullptr : &found->second;
}

void Crew::forget(const SlotMemory& memory) {
  if (const Shown* const shown = find(memory)) {
    say_to_all(RankMessage(Kind::kForget, shown->number)).IgnoreError();
    shown_.erase(memory.data());
  }
}

absl::Status Crew::write(const Layout& layout, SlotMemory& memory, bool digest, kernels::ThreadPool& pool) {
  writing_ = find(memory);
  if (writing_ == nullptr) return absl::InternalError("a slot that the ranks do not know");
  slot_ = &memory;
  digest_ = digest;
  BASCULE_ASSIGN(const bool other_strides, held_->refresh());
  if (other_strides) layout_.reset();
  if (!layout_) BASCULE_TRY(plan_packing(layout));  // also if the last attempt failed
  RankMessage message(Kind::kWrite, writing_->number);
  message.step = step_;
  message.digest = digest;
  BASCULE_TRY(say_to_all(message));
  if (division_) return region_->begin(*held_, memory, digest, *writing_->table, writing_->on_device.get(), pool);
  packing_->write(*held_, memory.writable(), *writing_->table, digest, pool);
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Digest>> Crew::finish(Deadline deadline, kernels::ThreadPool& pool,
                                                   std::span<kernels::TileTotal> table) {
  BASCULE_TRY(hear_all(Kind::kWritten, deadline, "written its part", Late::kLost));
  for (std::size_t rank = 1; rank < members_.size(); ++rank)
    BASCULE_TRY(annotate(received(members_[rank].came->status), name_of_rank(rank)));
  if (division_) {
    BASCULE_TRY(region_->finish(deadline));
  } else if (digest_) {
    BASCULE_TRY(digest_shared_tiles(deadline, pool));
  }
  if (!digest_) return std::nullopt;
  return add_up(writing_->table->totals(), table, pool).finish(slot_->bytes);
}

absl::Status Crew::digest_shared_tiles(Deadline deadline, kernels::ThreadPool& pool) {
  BASCULE_TRY(say_to_all(RankMessage(Kind::kDigest, writing_->number)));
  writing_->table->digest_share(slot_->writable(), 0, members_.size(), pool);
  return hear_all(Kind::kDigested, deadline, "digested its share", Late::kLost);
}

void Crew::report(const absl::StatusOr<SendReport>& report) {
  RankMessage message(Kind::kReport);
  message.report = sent(report);
  message.step = step_;
  std::string bytes;  // the ranks' calls usually have the same number
  for (std::size_t rank = 1; rank < members_.size() && lost_.ok(); ++rank) {
    Member& member = members_[rank];
    std::uint64_t call = std::exchange(member.call, 0);
    if (call == 0 && !member.missed.empty() && member.missed.back() == step_) call = kCallForStep;
    if (call == 0) continue;
    if (bytes.empty() || message.number != call) {
      message.number = call;
      bytes = to_bytes(message);
    }
    say(rank, name_of(message), bytes).IgnoreError();
  }
}

}  // namespace bascule::inline v0
