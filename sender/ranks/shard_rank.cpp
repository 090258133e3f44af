#include <bascule/sender/ranks/shard_rank.h>

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include <bascule/schemes/registry.h>
#include <bascule/sender/ranks/crew.h>
#include <bascule/sender/ranks/join.h>
#include <bascule/transport/caught.h>
#include <bascule/transport/status.h>
#include <bascule/transport/threads.h>

namespace bascule::inline v0 {
namespace {

using Kind = RankMessage::Kind;

}  // namespace

absl::StatusOr<std::unique_ptr<ShardRank>> ShardRank::make(SenderOptions options) {
  BASCULE_ASSIGN(Endpoint endpoint, Endpoint::parse(options.endpoint));
  BASCULE_ASSIGN(const Scheme* const scheme, scheme_for(endpoint, options.scheme));
  BASCULE_TRY(check_ranks(options, *scheme, endpoint));
  return starting_threads("the sender", [&]() -> absl::StatusOr<std::unique_ptr<ShardRank>> {
    return std::make_unique<ShardRank>(std::move(endpoint), *scheme, std::move(options));
  });
}

ShardRank::ShardRank(Endpoint endpoint, const Scheme& scheme, SenderOptions options)
    : endpoint_(std::move(endpoint)), scheme_(scheme), options_(std::move(options)), pool_(options_.threads) {
  options_.trace = unfailing(std::move(options_.trace));
}

void ShardRank::trace(std::string_view direction, std::string_view message) const {
  if (options_.trace) options_.trace(cat(direction, " rank 0: ", message));
}

absl::Status ShardRank::lose(const absl::Status& why) {
  lost_ = absl::Status(why.code(), cat("rank 0 is lost: ", message_of(why), "; start all ranks of the trainer again"));
  line_.reset();
  pending_ = false;
  return lost_;
}

// Rank 0 has hung up. What it said before may still be there to be read.
absl::Status ShardRank::reason_of_rank_0(const absl::Status& otherwise) {
  for (std::size_t messages = 0; messages < kMostUnawaitedMessages; ++messages) {
    const absl::StatusOr<RankLine::Frame> frame = line_->read(Deadline(absl::ZeroDuration()));
    if (!frame.ok()) break;
    const absl::StatusOr<RankMessage> message = parse_rank_message(frame->bytes);
    if (message.ok() && message->kind == Kind::kReport && message->number == 0 && message->report)
      return received(message->report->error);
  }
  return otherwise;
}

absl::Status ShardRank::say(const RankMessage& message, std::span<const int> descriptors) {
  BASCULE_TRY(lost_);
  trace("to", name_of(message));
  const absl::Status written = line_->write(to_bytes(message), Deadline(endpoint_.timeout), descriptors);
  return written.ok() || absl::IsInvalidArgument(written) ? written : lose(reason_of_rank_0(written));
}

absl::Status ShardRank::answer(Kind kind, const absl::Status& status) {
  RankMessage message(kind);
  message.status = sent(status);
  return say(message);
}

absl::Status ShardRank::register_shards(std::unique_ptr<ShardSource> source, std::string description,
                                        absl::Duration timeout) {
  if (held_)
    return failed_precondition("register_shards: a model is registered already; each model needs its own ",
                               "sender and endpoint");
  const Deadline deadline(timeout);
  absl::StatusOr<HeldShards> held = HeldShards::make(std::move(source), scheme_);
  if (!line_) {
    // If the shards cannot be sent, rank 0 is told, unless it is not there yet.
    const Deadline until = held.ok() ? deadline : Deadline(std::min(timeout, endpoint_.suspect_after));
    trace("to", "rank_hello");
    absl::StatusOr<RankLine> line = join_rank_0(endpoint_, options_.rank, options_.ranks, until, options_.interrupted);
    BASCULE_TRY(held.ok() ? line.status() : absl::OkStatus());
    if (line.ok()) {
      trace("from", "rank_welcome");
      line_.emplace(*std::move(line));
    }
  }
  if (!held.ok()) {
    if (line_) static_cast<void>(answer(Kind::kShards, held.status()));
    return held.status();
  }
  held_.emplace(*std::move(held));
  RankMessage message(Kind::kShards);
  message.specs = held_->specs();
  message.description = std::move(description);
  message.numbers = held_->numbers();
  BASCULE_TRY(say(message));
  const absl::StatusOr<RankMessage> plan = obey_until(Kind::kPlan, deadline);
  if (absl::IsDeadlineExceeded(plan.status()) && lost_.ok()) return name_missing_ranks(plan.status());
  BASCULE_TRY(plan.status());
  if (absl::Status planned = received(plan->status); !planned.ok()) return planned;
  for (const std::int64_t box : plan->numbers) owned_.push_back(static_cast<std::uint32_t>(box));
  return absl::OkStatus();
}

// Rank 0 may wait longer than this rank, and knows for whom.
absl::Status ShardRank::name_missing_ranks(const absl::Status& otherwise) const {
  const absl::StatusOr<std::vector<RankStatus>> ranks = ask_for_ranks(endpoint_);
  if (!ranks.ok())
    return deadline_exceeded(message_of(otherwise), "; which ranks are missing is not known, as ",
                             message_of(ranks.status()));
  const absl::Status missing = missing_ranks(*ranks);
  return missing.ok() ? otherwise : missing;
}

// ---- what rank 0 says ----

absl::StatusOr<RankMessage> ShardRank::obey_until(Kind kind, Deadline deadline) {
  for (std::size_t messages = 0;; ++messages) {
    BASCULE_TRY(lost_);
    if (messages > kMostUnawaitedMessages)
      return lose(invalid_argument("it broke the protocol: ", messages, " messages, and none of them was ",
                                   name_of(RankMessage(kind))));
    const std::array<RankLine*, 1> line{&*line_};
    const absl::StatusOr<std::vector<std::size_t>> ready = wait_readable(line, deadline, options_.interrupted);
    if (absl::IsDeadlineExceeded(ready.status()))
      return deadline_exceeded("rank 0 did not answer in time: it, or another rank, has not made the same call");
    BASCULE_TRY(ready.status());
    absl::StatusOr<RankLine::Frame> frame = line_->read(Deadline(endpoint_.timeout));
    if (!frame.ok()) return lose(frame.status());
    absl::StatusOr<RankMessage> message = parse_rank_message(frame->bytes);
    if (!message.ok()) return lose(message.status());
    trace("from", name_of(*message));
    switch (message->kind) {
      case Kind::kSlot: {
        BASCULE_TRY(take_slot(*message, std::move(frame->descriptors)));
        break;
      }
      case Kind::kForget: slots_.erase(message->number); break;
      case Kind::kWrite: {
        BASCULE_TRY(write_part(*message));
        break;
      }
      case Kind::kDigest:
        if (const auto slot = slots_.find(message->number); slot != slots_.end() && slot->second.table)
          slot->second.table->digest_share(slot->second.writable(), options_.rank, options_.ranks, pool_);
        BASCULE_TRY(answer(Kind::kDigested, absl::OkStatus()));
        break;
      case Kind::kReport:
        if (message->number == 0 && message->report)  // for all calls
          return lose(received(message->report->error));
        if (message->number == call_ || (message->number == kCallForStep && message->step == step_)) return message;
        break;
      default: break;
    }
    if (message->kind == kind) return message;
  }
}

absl::Status ShardRank::take_slot(RankMessage& message, std::vector<UniqueFd> descriptors) {
  if (!message.layout || message.bytes != message.layout->bytes())
    return answer(Kind::kMapped, invalid_argument("rank 0 shows a slot without its memory, its table or its layout"));
  if (!message.layout->division()) return answer(Kind::kMapped, map_slot(message, std::move(descriptors)));
  const absl::Status made = make_region(message, descriptors);
  RankMessage mapped(Kind::kMapped);
  mapped.status = sent(made);
  if (!made.ok()) return say(mapped);
  const SlotMemory& region = slots_.at(message.number).region;
  mapped.description = region.place;
  const int descriptor = region.descriptor.get();
  return say(mapped, descriptor < 0 ? std::span<const int>() : std::span(&descriptor, 1));
}

absl::Status ShardRank::make_region(RankMessage& message, std::span<const UniqueFd> descriptors) {
  if (descriptors.size() != 1) return invalid_argument("rank 0 shows a slot without its table");
  if (message.layout->division()->regions != options_.ranks)
    return invalid_argument("rank 0 shows a slot of ", message.layout->division()->regions, " regions for ",
                            options_.ranks, " ranks");
  if (!transport_) {
    BASCULE_ASSIGN(transport_, scheme_.make_sender(endpoint_, /*epoch=*/0));
  }
  Slot slot;
  BASCULE_ASSIGN(slot.table, SharedTable::map(descriptors.front().get(), message.bytes));
  if (message.layout->region_borders()[options_.rank] < message.layout->region_borders()[options_.rank + 1]) {
    BASCULE_ASSIGN(slot.region, transport_->make_region(*message.layout, options_.rank, held_->device()));
    slot.region.mapping.keep_from_children();
  }
  if (layout_ != message.layout) {
    slots_.clear();
    layout_ = std::move(message.layout);
    planned_ = false;
  }
  BASCULE_TRY(plan_packing());
  BASCULE_ASSIGN(slot.on_device, region_->reach(*slot.table));
  slots_.insert_or_assign(message.number, std::move(slot));
  return absl::OkStatus();
}

absl::Status ShardRank::plan_packing() {
  if (planned_) return absl::OkStatus();
  if (!layout_->division()) {
    BASCULE_ASSIGN(packing_, ShardPacking::make(*layout_, *held_, owned_));
  } else {
    if (!region_) {
      BASCULE_ASSIGN(region_, RegionPacking::make(held_->device()));
    }
    BASCULE_TRY(region_->plan(*layout_, options_.rank, *held_, owned_));
  }
  planned_ = true;
  return absl::OkStatus();
}

absl::Status ShardRank::map_slot(RankMessage& message, std::vector<UniqueFd> descriptors) {
  if (descriptors.size() != 2)
    return invalid_argument("rank 0 shows a slot without its memory, its table or its layout");
  struct stat status {};
  if (::fstat(descriptors[0].get(), &status) != 0) return errno_status(errno, "examine a slot");
  const auto size = static_cast<std::uint64_t>(std::max<off_t>(status.st_size, 0));
  if (message.data_offset > size || message.bytes > size - message.data_offset)
    return invalid_argument("rank 0 shows a slot of ", size, " bytes, expected ", message.bytes, " after the first ",
                            message.data_offset);
  BASCULE_ASSIGN(Mapping mapping,
                 Mapping::map(descriptors[0].get(), message.data_offset + message.bytes, Access::kReadWrite));
  BASCULE_ASSIGN(SharedTable table, SharedTable::map(descriptors[1].get(), message.bytes));
  if (layout_ != message.layout) {
    slots_.clear();
    layout_ = std::move(message.layout);
    planned_ = false;
  }
  BASCULE_TRY(plan_packing());
  packing_->mark(table);
  mapping.keep_from_children();
  slots_.insert_or_assign(message.number, Slot{.mapping = std::move(mapping),
                                               .data_offset = message.data_offset,
                                               .bytes = message.bytes,
                                               .table = std::move(table)});
  return absl::OkStatus();
}

absl::Status ShardRank::write_part(RankMessage& message) {
  RankMessage written(Kind::kWritten);
  const absl::Status done = caught([&] { return write(message); });  // it calls the user's code
  written.status = sent(done);
  BASCULE_TRY(say(written));
  const bool digests = message.digest && !layout_->division();  // tiles of several ranks
  if (!digests && done.ok()) message.kind = Kind::kDigest;      // else nothing is left to do
  return absl::OkStatus();
}

absl::Status ShardRank::write(const RankMessage& message) {
  const auto slot = slots_.find(message.number);
  if (slot == slots_.end()) return invalid_argument("rank 0 names slot ", message.number, ", which it did not show");
  if (message.step != step_) return failed_precondition("it is at step ", step_, ", and rank 0 at step ", message.step);
  BASCULE_ASSIGN(const bool other_strides, held_->refresh());
  planned_ &= !other_strides;
  BASCULE_TRY(plan_packing());
  if (!layout_->division()) {
    packing_->write(*held_, slot->second.writable(), *slot->second.table, message.digest, pool_);
    return absl::OkStatus();
  }
  BASCULE_TRY(region_->begin(*held_, slot->second.region, message.digest, *slot->second.table,
                             slot->second.on_device.get(), pool_));
  return region_->finish(Deadline(endpoint_.timeout));
}

// ---- calls ----

// Rank 0 waits for the other ranks and then for a slot, until all have packed, and until the workers have answered.
absl::Duration ShardRank::longest_send() const {
  return 4 * endpoint_.timeout + 3 * endpoint_.flip_timeout + std::max(2 * endpoint_.load_timeout, endpoint_.timeout) +
         2 * endpoint_.suspect_after;
}

absl::Status ShardRank::stage(const std::string& call, std::uint64_t step) {
  BASCULE_TRY(lost_);
  if (!held_) return failed_precondition("no model is registered; call register_shards first");
  if (pending_)
    return failed_precondition("Cannot call ", call, " while a previous send is pending. Call wait_async() first.");
  step_ = step;
  report_.reset();
  RankMessage message(Kind::kReady, ++call_);
  message.call = call;
  message.step = step;
  BASCULE_TRY(say(message));
  pending_ = true;
  absl::StatusOr<RankMessage> came = obey_until(Kind::kDigest, Deadline(longest_send()));
  if (!came.ok()) {
    pending_ = false;
    return came.status();
  }
  if (came->kind != Kind::kReport) return absl::OkStatus();
  report_ = *std::move(came);
  // The call has failed, or rank 0 was done without this rank's digest.
  const absl::StatusOr<SendReport> report = settled(Deadline(absl::ZeroDuration()));
  if (!report.ok()) return report.status();
  return absl::InternalError("rank 0 reports a version that this rank has not written");
}

absl::StatusOr<SendReport> ShardRank::settled(Deadline deadline) {
  if (!report_) {
    BASCULE_ASSIGN(report_, obey_until(Kind::kReport, deadline));
  }
  pending_ = false;
  const RankMessage came = *std::exchange(report_, std::nullopt);
  if (!came.report) return lose(invalid_argument("a report without a report"));
  absl::StatusOr<SendReport> report = received(*came.report);
  if (report.ok()) version_ = report->version;
  return report;
}

absl::StatusOr<SendReport> ShardRank::settled() {
  absl::StatusOr<SendReport> report = settled(Deadline(longest_send()));
  pending_ = false;
  return report;
}

}  // namespace bascule::inline v0
