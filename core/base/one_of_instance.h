#pragma once

#include <utility>

#include "core/base/one_of.h"

/// Included by the one source file that instantiates OneOf<V>, with
///
///     template class OneOf<V>;
///     template OneOf<V>::OneOf(T value);    // for each type T of V.
namespace stdchk {

template <class Variant>
OneOf<Variant>::OneOf() = default;
template <class Variant>
OneOf<Variant>::OneOf(const OneOf& other) = default;
template <class Variant>
OneOf<Variant>::OneOf(OneOf&& other) noexcept = default;
template <class Variant>
OneOf<Variant>& OneOf<Variant>::operator=(const OneOf& other) = default;
template <class Variant>
OneOf<Variant>& OneOf<Variant>::operator=(OneOf&& other) noexcept = default;
template <class Variant>
OneOf<Variant>::~OneOf() = default;

template <class Variant>
template <class T>
requires kIsAlternative<T, Variant> OneOf<Variant>::OneOf(T value) : Variant(std::move(value)) {}

}  // namespace stdchk
