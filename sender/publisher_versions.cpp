// Publisher: one version, from taking its slot to its report.
#include <bascule/sender/publisher.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include <bascule/sender/infinities.h>
#include <bascule/transport/caught.h>
#include <bascule/transport/device.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

// A little more than in-place readers on a GPU take from the seal to the last ack. A thread that slept meanwhile would
// wake 40 us late, which is a third of that time; see transport/stay_awake.h.
constexpr absl::Duration kAwakeBehindThePack = absl::Milliseconds(1);

constexpr std::size_t kMostUpdates = 100, kMostLost = 10'000;  // that wait for the next report

}  // namespace

absl::Status Publisher::check_free(std::string_view call) {
  if (!registration_) return failed_precondition("no model is registered; call register_model first");
  if (endpoint_.held && published_.version != 0)
    return failed_precondition(call, ": this sender holds version ", published_.version,
                               ", which never changes; send versions that change at another endpoint");
  if (loaned_) return failed_precondition("a loan is out; publish it or drop it first");
  if (pending_ == Pending::kSend)
    return failed_precondition("Cannot call ", call, call == "send_async()" ? " again" : "",
                               " while a previous send is pending. Call wait_async() first.");
  return settle_update();
}

// The next report includes the outcome of an update_weights().
absl::Status Publisher::settle_update() {
  if (pending_ != Pending::kUpdate) return absl::OkStatus();
  const absl::StatusOr<SendReport> report = settled();
  if (pending_ != Pending::kNothing) return report.status();
  UpdateReport update{.version = sealed_version_, .status = report.status(), .workers = {}, .warnings = {}};
  if (report.ok()) {
    update.workers = report->workers;
    update.warnings = report->warnings;
  }
  updates_.push_back(std::move(update));
  if (updates_.size() > kMostUpdates) leave_out(updates_.front());
  return absl::OkStatus();
}

// A trainer that only ever calls update_weights() must not collect reports without end. Of the oldest one there remain
// the workers that it lost, and its error.
void Publisher::leave_out(const UpdateReport& update) {
  for (const WorkerReport& worker : update.workers)
    if (worker.state == WorkerState::kEvicted && lost_.size() < kMostLost) lost_[worker.worker] = worker;
  ++left_out_;
  if (!update.status.ok()) left_out_error_ = cat("version ", update.version, ": ", message_of(update.status));
  updates_.pop_front();
}

// Moves the outcomes of the updates since the last report to this one.
void Publisher::add_updates(SendReport& report) {
  report.updates.assign(std::make_move_iterator(updates_.begin()), std::make_move_iterator(updates_.end()));
  updates_.clear();
  if (left_out_ > 0)
    report.warnings.push_back(
        cat(left_out_, " older updates are left out of the report, which has the last ", kMostUpdates,
            left_out_error_.empty() ? "" : cat("; the last error among them was: ", left_out_error_)));
  left_out_ = 0;
  left_out_error_.clear();
  if (to_all_) name_lost(report);
}

absl::Status Publisher::begin_writing(Coordinator::Grant& grant, std::optional<OfferedSlot>& made, Deadline deadline) {
  for (int tries = 0;; ++tries) {
    if (grant.is_new) {
      absl::StatusOr<OfferedSlot> memory = slots_->add(grant.slot);
      if (!memory.ok() && !grant.spare_for.empty())
        return annotate(memory.status(), cat("a spare slot, because ", grant.spare_for, " still read"));
      BASCULE_TRY(memory.status());
      made = *memory;
    }
    absl::Status begun = slots_->begin(grant.slot, deadline);
    if (!absl::IsUnavailable(begun) || tries > 0 || single_copy()) return begun;
    grant = coordinator_->replace(grant);  // a reader that the ring does not know still reads it
    for (const SlotId dropped : grant.dropped) slots_->drop(dropped);
  }
}

absl::StatusOr<Publication> Publisher::begin(const WorkerNames& workers, Clock::time_point called, const Limit& limit,
                                             bool packed) {
  BASCULE_TRY(open_slots());
  measured_ = {};
  to_all_ = workers.empty();
  BASCULE_ASSIGN(Coordinator::Grant grant, coordinator_->take(workers, limit));
  std::optional<OfferedSlot> made;
  // From here on an exception must not end the call: the fleet has to learn how the grant and its version end.
  const absl::Status begun = caught([&] {
    for (const SlotId dropped : grant.dropped) slots_->drop(dropped);
    return begin_writing(grant, made, limit.deadline());
  });
  if (!begun.ok()) {
    coordinator_->give_back(grant);
    return begun;
  }
  grant.in_pieces &= packed;
  coordinator_->announce(grant, made, limit);
  if (single_copy()) {
    const absl::Status yielded = caught([&] { return coordinator_->wait_yielded(grant.version, settles_by()); });
    if (!yielded.ok()) {
      slots_->seal_again(grant.slot, published_.version, published_.digest);
      coordinator_->abandon(grant.version, yielded);
      return yielded;
    }
  }
  measured_.wait = seconds_between(called, Clock::now());
  in_pieces_ = grant.in_pieces;
  return Publication{
      .version = grant.version, .slot = grant.slot, .bytes = slots_->slot_bytes(), .digest = std::nullopt};
}

void Publisher::seal(Publication publication, std::optional<Digest> digest, const Limit& limit) noexcept {
  warnings_.clear();
  sealed_version_ = publication.version;
  publication.digest = digest;
  absl::Status sealed = caught([&] {
    if (digest && published_.digest == digest)
      warnings_.push_back(cat("version ", publication.version, kSameBytes, published_.version,
                              ": the weights did not change between the two sends"));
    return slots_->seal(publication);
  });
  if (!sealed.ok()) return coordinator_->abandon(publication.version, std::move(sealed));
  coordinator_->seal(publication.version, digest, limit);
}

absl::Status Publisher::stage(std::string_view call, TensorSource* weights, const WorkerNames& workers, Pending pending,
                              bool wait) {
  BASCULE_TRY(check_unsharded(call));
  BASCULE_TRY(check_free(call));
  if (single_copy())
    return failed_precondition(call, ": with slots=1 the parameters live in the slot; use loan(), step, publish()");
  return pack_and_seal(
      call, [&] { return registration_->packing(weights); }, workers, pending, wait);
}

absl::Status Publisher::stage_shards(std::string_view call, std::uint64_t step, const WorkerNames& workers) {
  if (!crew_ || !registration_)
    return failed_precondition(call, ": no shards are registered; call register_shards first");
  BASCULE_TRY(check_free(call));
  absl::Status staged = crew_->gather(std::string(call), step);
  if (staged.ok())
    staged = pack_and_seal(
        call, [this] { return Packing{.slot_bytes = registration_->layout().bytes()}; }, workers, Pending::kSend,
        /*wait=*/true);
  if (!staged.ok()) crew_->report(staged);
  return staged;
}

absl::Status Publisher::pack_and_seal(std::string_view call, const MakePacking& make_packing,
                                      const WorkerNames& workers, Pending pending, bool wait) {
  const Clock::time_point called = Clock::now();
  const Limit asked = Limit::timeout(endpoint_, Clock::now());
  const auto leave_time = [&] { return asked.or_least(endpoint_, Clock::now()); };
  BASCULE_ASSIGN(Packing packing, make_packing());
  BASCULE_TRY(annotate(packer_->check(packing), call));
  if (!slots_->is_open()) {  // now the layout becomes final
    BASCULE_TRY(open_slots());
    BASCULE_ASSIGN(packing, make_packing());
  }
  BASCULE_TRY(packer_->plan(packing));
  // A send that took long to make its slots still has time to wait for one. A send that waited long for its slot still
  // has time to fill it, and its workers have time to prepare it.
  BASCULE_ASSIGN(const Publication publication, begin(workers, called, leave_time(), /*packed=*/true));
  const Limit limit = leave_time();
  packing.in_pieces = in_pieces_;
  may_overflow_.clear();
  if (endpoint_.wire_dtype == DType::kF16 || !packing.arithmetic.empty())
    static_cast<void>(caught([&] { may_overflow_ = registration_->may_overflow(packing); }));  // else no warning
  const Clock::time_point start = Clock::now();
  absl::Status packed = caught([&] {
    return annotate(packer_->pack(packing, slots_->memory(publication.slot), endpoint_.digest != DigestMode::kOff,
                                  slots_->bytes_done(publication.slot),
                                  packer_->makes_table(packing) ? slots_->fill_table(publication.slot) : SlotTable{}),
                    cat("pack version ", publication.version));
  });
  if (!packed.ok()) {
    sealed_version_ = publication.version;
    coordinator_->abandon(publication.version, packed);
    return packed;
  }
  if (packer_->enqueues() && !wait) {
    finish_behind(publication, start, limit);
  } else {
    finish(publication, start, limit);
  }
  pending_ = pending;
  return absl::OkStatus();
}

void Publisher::finish(const Publication& publication, Clock::time_point packing_since, const Limit& limit) noexcept {
  std::optional<Digest> digest;
  const absl::Status packed = caught([&]() -> absl::Status {
    absl::StatusOr<std::optional<Digest>> finished = packer_->finish(limit.deadline());
    const std::string within = absl::IsDeadlineExceeded(finished.status()) ? cat(" within ", limit.text()) : "";
    BASCULE_TRY(annotate(finished.status(), cat("pack version ", publication.version, within)));
    digest = *finished;
    return absl::OkStatus();
  });
  measured_.pack = seconds_between(packing_since, Clock::now());
  if (packed.ok()) {
    seal(publication, digest, limit);
    // While the workers prepare. Without memory there is no warning.
    return static_cast<void>(caught([&] { look_for_infinities(publication); }));
  }
  warnings_.clear();
  sealed_version_ = publication.version;
  coordinator_->abandon(publication.version, packed);
}

// f16 has no values above 65,504: larger ones become infinite, and an engine that reads them answers nonsense.
void Publisher::look_for_infinities(const Publication& publication) {
  const SlotMemory& memory = slots_->memory(publication.slot);
  if (may_overflow_.empty() || memory.device != kHost || registration_->layout().division()) return;
  const std::vector<std::string> names = with_infinities(may_overflow_, {memory.data(), memory.bytes}, pool_);
  if (names.empty()) return;
  std::string warning =
      cat("version ", publication.version, ": ", names.size(), " tensors, such as ", names.front(),
          ", have elements that are infinite in f16, whose largest number is 65,504; use wire_dtype=bf16");
  if (!std::exchange(said_infinite_, true) && warn_) warn_(warning);
  warnings_.push_back(std::move(warning));
}

void Publisher::finish_behind(const Publication& publication, Clock::time_point packing_since, const Limit& limit) {
  {
    const std::lock_guard lock(sealing_mutex_);
    sealing_ = true;
  }
  static_cast<void>(until_done([&] {
    sealer_->submit([this, publication, packing_since, limit] {
      finish(publication, packing_since, limit);
      const std::lock_guard lock(sealing_mutex_);
      sealing_ = false;
      sealed_.notify_all();
    });
  }));
}

bool Publisher::sealed_by(Deadline deadline) {
  std::unique_lock lock(sealing_mutex_);
  return sealed_.wait_until(lock, deadline.at(), [this] { return !sealing_; });
}

// The digest of a slot that the caller wrote.
absl::StatusOr<std::optional<Digest>> Publisher::digest_of(SlotId slot, bool want_digest, Deadline deadline) {
  BASCULE_TRY(
      packer_->digest(slots_->memory(slot).writable(), want_digest, registration_->stream(), slots_->fill_table(slot)));
  return packer_->finish(deadline);
}

// The other ranks get the report too, unless the send stays pending.
absl::StatusOr<SendReport> Publisher::settled(Deadline deadline) {
  absl::StatusOr<SendReport> report = settled_here(deadline);
  if (crew_ && pending_ == Pending::kNothing) crew_->report(report);
  return report;
}

absl::StatusOr<SendReport> Publisher::settled_here(Deadline deadline) {
  std::optional<absl::StatusOr<SendReport>> done;
  if (sealed_by(deadline))
    done = coordinator_->wait_settled(sealed_version_, deadline,
                                      scheme_->on_device ? kAwakeBehindThePack : absl::ZeroDuration());
  if (!done && !deadline.passed()) return absl::CancelledError("interrupted while the send settles; it stays pending");
  if (!done) return deadline_exceeded("the send has not settled yet; it stays pending");
  const bool is_update = std::exchange(pending_, Pending::kNothing) == Pending::kUpdate;
  absl::StatusOr<SendReport> report = *std::move(done);
  if (!report.ok()) return report;
  published_ = {.version = report->version, .digest = report->digest};
  if (endpoint_.held) BASCULE_TRY(annotate(slots_->freeze({coordinator_->epoch(), 0}), "make the version read-only"));
  report->seconds.wait = measured_.wait;
  report->seconds.pack = measured_.pack;
  packer_->took(measured_.pack, report->seconds.deliver + report->seconds.prepare);
  report->memory = slots_->set()->memory.begin()->second.description;
  if (const absl::Status kept = take_kept_device_errors(); !kept.ok())
    report->warnings.push_back(cat("freeing memory on a device: ", message_of(kept)));
  report->warnings.insert(report->warnings.end(), warnings_.begin(), warnings_.end());
  warnings_.clear();
  if (!is_update) add_updates(*report);
  return report;
}

// Workers that an update_weights() lost, unless they have come back.
void Publisher::name_lost(SendReport& report) {
  for (const UpdateReport& update : report.updates)
    for (const WorkerReport& worker : update.workers)
      if (worker.state == WorkerState::kEvicted) lost_.emplace(worker.worker, worker);
  for (const auto& [name, lost] : lost_)
    if (std::ranges::find(report.workers, name, &WorkerReport::worker) == report.workers.end())
      report.workers.push_back(lost);
  lost_.clear();
}

absl::StatusOr<SendReport> Publisher::settled() {
  absl::StatusOr<SendReport> report = settled(settles_by());
  if (pending_ == Pending::kNothing) return report;
  pending_ = Pending::kUpdate;
  if (!absl::IsCancelled(report.status()))
    report = deadline_exceeded(
        "the send did not settle before its deadlines passed: this process stood still, or its scheme has not "
        "answered. "
        "The ",
        "next call waits for it, and its report has the outcome");
  if (crew_) crew_->report(report);
  return report;
}

}  // namespace bascule::inline v0
