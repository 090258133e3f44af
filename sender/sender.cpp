#include <bascule/sender/sender.h>

#include <algorithm>
#include <utility>

#include <bascule/sender/publisher.h>
#include <bascule/sender/ranks/shard_rank.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {

struct WritableSlot::Loan {
  std::weak_ptr<Publisher> publisher;
  std::shared_ptr<SlotSet> slots;
  Publication publication;
  std::vector<MutableTensorView> tensors;
};

Sender::Sender(std::shared_ptr<Publisher> publisher) : publisher_(std::move(publisher)) {}
Sender::Sender(std::unique_ptr<ShardRank> rank) : rank_(std::move(rank)) {}
Sender::Sender(Sender&&) noexcept = default;
Sender& Sender::operator=(Sender&&) noexcept = default;
Sender::~Sender() = default;

absl::StatusOr<Sender> Sender::listen(SenderOptions options) {
  if (options.rank > 0) {
    BASCULE_ASSIGN(std::unique_ptr<ShardRank> rank, ShardRank::make(std::move(options)));
    return Sender(std::move(rank));
  }
  BASCULE_ASSIGN(std::shared_ptr<Publisher> publisher, Publisher::open(std::move(options)));
  return Sender(std::move(publisher));
}

absl::Status Sender::only_rank_0(std::string_view call) const {
  if (!rank_) return absl::OkStatus();
  return failed_precondition(call, ": this is rank ", rank_->rank(),
                             ", which only sends its shards; call it on rank 0");
}

absl::Status Sender::register_model(std::unique_ptr<TensorSource> source, std::string description) {
  BASCULE_TRY(only_rank_0("register_model"));
  return publisher_->register_model(std::move(source), std::move(description));
}

absl::Status Sender::register_model(std::vector<TensorSpec> specs, int device, std::string description) {
  BASCULE_TRY(only_rank_0("register_model"));
  return publisher_->register_model(std::move(specs), device, std::move(description));
}

absl::Status Sender::register_shards(std::unique_ptr<ShardSource> source, std::string description,
                                     absl::Duration timeout) {
  if (rank_) return rank_->register_shards(std::move(source), std::move(description), timeout);
  return publisher_->register_shards(std::move(source), std::move(description), timeout);
}

absl::Status Sender::expect_workers(ExpectedWorkers workers) {
  BASCULE_TRY(only_rank_0("expect_workers"));
  return publisher_->expect(std::move(workers));
}

absl::StatusOr<std::vector<std::string>> Sender::wait_for_workers(int count, absl::Duration timeout) {
  BASCULE_TRY(only_rank_0("wait_for_workers"));
  return publisher_->wait_for_workers(count, timeout);
}

absl::StatusOr<SendReport> Sender::send(std::unique_ptr<TensorSource> weights,
                                        const std::vector<std::string>& worker_ids) {
  BASCULE_TRY(only_rank_0("send() without a step"));
  BASCULE_TRY(publisher_->stage("send()", weights.get(), worker_ids, Publisher::Pending::kSend, true));
  return publisher_->settled();
}

absl::StatusOr<SendReport> Sender::send(const SendOptions& options) {
  if (rank_) {
    BASCULE_TRY(rank_->stage("send()", options.step));
    return rank_->settled();
  }
  BASCULE_TRY(publisher_->stage_shards("send()", options.step, options.worker_ids));
  return publisher_->settled();
}

absl::Status Sender::send_async(const SendOptions& options) {
  if (rank_) return rank_->stage("send_async()", options.step);
  return publisher_->stage_shards("send_async()", options.step, options.worker_ids);
}

absl::Status Sender::send_async(std::unique_ptr<TensorSource> weights, const std::vector<std::string>& worker_ids) {
  BASCULE_TRY(only_rank_0("send_async() without a step"));
  return publisher_->stage("send_async()", weights.get(), worker_ids, Publisher::Pending::kSend, false);
}

absl::StatusOr<SendReport> Sender::adopt(const HeldVersion& version) {
  BASCULE_TRY(only_rank_0("adopt"));
  return publisher_->adopt(version);
}

absl::StatusOr<HeldVersion> Sender::held() const {
  BASCULE_TRY(only_rank_0("held"));
  return publisher_->held();
}

absl::StatusOr<SendReport> Sender::wait_async(absl::Duration timeout) {
  if (rank_ ? !rank_->pending() : publisher_->pending() != Publisher::Pending::kSend)
    return failed_precondition("No async send is pending. Call send_async() first.");
  return rank_ ? rank_->settled(Deadline(timeout)) : publisher_->settled(Deadline(timeout));
}

absl::Status Sender::update_weights(std::unique_ptr<TensorSource> weights) {
  BASCULE_TRY(only_rank_0("update_weights"));
  return publisher_->stage("update_weights()", weights.get(), {}, Publisher::Pending::kUpdate, false);
}

absl::StatusOr<WritableSlot> Sender::loan(const std::vector<std::string>& worker_ids) {
  BASCULE_TRY(only_rank_0("loan()"));
  BASCULE_ASSIGN(const Publication publication, publisher_->lend(worker_ids));
  try {
    return WritableSlot(std::make_unique<WritableSlot::Loan>(
        WritableSlot::Loan{.publisher = publisher_,
                           .slots = publisher_->slots(),
                           .publication = publication,
                           .tensors = publisher_->slots()->tensors(publication.slot)}));
  } catch (...) {
    publisher_->take_back(publication);
    throw;
  }
}

absl::StatusOr<SendReport> Sender::publish(WritableSlot slot) {
  if (!slot.loan_ || slot.loan_->publisher.lock() != publisher_)
    return invalid_argument("publish: the slot is not on loan from this sender");
  const std::unique_ptr<WritableSlot::Loan> loan = std::move(slot.loan_);  // its destructor no longer aborts
  return publisher_->publish(loan->publication);
}

Version Sender::version() const { return rank_ ? rank_->version() : publisher_->version(); }

WritableSlot::WritableSlot(std::unique_ptr<Loan> loan) : loan_(std::move(loan)) {}
WritableSlot::WritableSlot(WritableSlot&&) noexcept = default;
WritableSlot& WritableSlot::operator=(WritableSlot&& other) noexcept {
  std::swap(loan_, other.loan_);  // `other` aborts the loan that this one held
  return *this;
}

WritableSlot::~WritableSlot() {
  if (!loan_) return;
  if (const std::shared_ptr<Publisher> publisher = loan_->publisher.lock()) publisher->take_back(loan_->publication);
}

Version WritableSlot::version() const { return loan_->publication.version; }
std::span<const MutableTensorView> WritableSlot::tensors() const { return loan_->tensors; }

const MutableTensorView* WritableSlot::find(std::string_view name) const {
  const auto found = std::ranges::find(loan_->tensors, name, &MutableTensorView::name);
  return found == loan_->tensors.end() ? nullptr : &*found;
}

}  // namespace bascule::inline v0
