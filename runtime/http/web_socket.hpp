#pragma once

#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/message.hpp>

#include "runtime/http/connection.hpp"

namespace holt::runtime::http {

using request_message = boost::beast::http::request<boost::beast::http::buffer_body>;

/// Answers the upgrade request on this socket, which must outlive the result. nullptr: the client went away, or the request
/// is no WebSocket handshake.
task<std::shared_ptr<web_socket>> accept_web_socket(tcp_socket& socket, const request_message& request);
/// Whether the request asks for one.
bool is_web_socket_request(const request_message& request);

} // namespace holt::runtime::http
