#include "receiver/connector.h"

#include <unistd.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/address.hpp>

#include <string>

#include "transport/posix/peer.h"
#include "transport/posix/private_folder.h"
#include "transport/text.h"

namespace bascule {
namespace {

namespace asio = boost::asio;
using Error = boost::system::error_code;
using Tcp = asio::ip::tcp;
using Addresses = Tcp::resolver::results_type;

}  // namespace

Connector::Connector(asio::io_context& io, const Endpoint& endpoint, std::optional<Token> token)
    : endpoint_(endpoint), token_(std::move(token)), local_(io), tcp_(io), resolver_(io), deadline_(io) {}

void Connector::connect(OnDone done) {
  cancel();
  done_ = std::move(done);
  deadline_.expires_after(absl::ToChronoNanoseconds(endpoint_.suspect_after));
  deadline_.async_wait([this, attempt = attempt_](const Error& cancelled) {
    if (!cancelled && attempt == attempt_)  // cancelled: this may be gone
      finish(unavailable("no connection to ", endpoint_.place(), " within ",
                         absl::FormatDuration(endpoint_.suspect_after)));
  });
  if (endpoint_.over_tcp()) {
    connect_host();
  } else {
    connect_folder();
  }
}

void Connector::cancel() {
  ++attempt_;
  done_ = nullptr;
  handshake_.reset();
  if (channel_) channel_->close();
  channel_.reset();
  Error ignored;
  local_.close(ignored);
  tcp_.close(ignored);
  resolver_.cancel();
  deadline_.cancel();
}

void Connector::finish(absl::StatusOr<std::shared_ptr<Channel>> result) {
  const OnDone done = std::move(done_);
  if (result.ok()) channel_.reset();  // not ours to close any more
  cancel();
  done(std::move(result));
}

void Connector::connect_folder() {
  absl::Status folder = check_private_folder(endpoint_.folder);
  if (absl::IsNotFound(folder)) folder = unavailable("no sender has been at ", endpoint_.place(), " yet");
  if (!folder.ok()) return finish(std::move(folder));
  local_.async_connect(endpoint_.control_socket().string(), [this, attempt = attempt_](const Error& error) {
    if (attempt != attempt_) return;
    if (error) return finish(unavailable("no sender is listening at ", endpoint_.control_socket().string()));
    if (absl::Status peer = check_peer(local_.native_handle(), ::geteuid()); !peer.ok()) return finish(std::move(peer));
    finish(std::make_shared<Channel>(Channel::Socket(std::move(local_))));
  });
}

void Connector::connect_host() {
  Error no_address;
  const asio::ip::address address = asio::ip::make_address(endpoint_.host, no_address);
  if (!no_address) return connect_to(Addresses::create({address, endpoint_.port}, "", ""));
  resolver_.async_resolve(endpoint_.host, std::to_string(endpoint_.port),
                          [this, attempt = attempt_](const Error& error, const Addresses& addresses) {
                            if (attempt != attempt_) return;
                            if (!error) return connect_to(addresses);
                            finish(unavailable("look up the host ", endpoint_.host, ": ", error.message()));
                          });
}

void Connector::connect_to(const Addresses& addresses) {
  asio::async_connect(tcp_, addresses, [this, attempt = attempt_](const Error& error, const Tcp::endpoint&) {
    if (attempt != attempt_) return;
    if (error) return finish(unavailable("no sender is listening at ", endpoint_.place(), ": ", error.message()));
    Error ignored;
    tcp_.set_option(Tcp::no_delay(true), ignored);  // a round is turns of small messages
    prove(std::make_shared<Channel>(Channel::Socket(std::move(tcp_))));
  });
}

void Connector::prove(std::shared_ptr<Channel> channel) {
  channel_ = std::move(channel);
  handshake_.emplace(Role::kReceiver, *token_);
  channel_->limit_frames(kMaxUnprovenFrameBytes);
  channel_->start([this](const Message& message, const std::vector<UniqueFd>&) { on_message(message); },
                  [this](const absl::Status& why) { finish(annotate(why, "the sender")); });
}

void Connector::on_message(const Message& message) {
  if (const auto* refused = std::get_if<Refused>(&message))
    return finish(refused->final ? absl::UnauthenticatedError(refused->why) : unavailable(refused->why));
  const absl::StatusOr<std::optional<Message>> answer = handshake_->on_message(message);
  if (!answer.ok()) return finish(answer.status());
  if (*answer) channel_->send(**answer);
  if (!handshake_->done()) return;
  channel_->limit_frames(kMaxFrameBytes);
  finish(channel_);
}

}  // namespace bascule
