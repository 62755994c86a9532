"""A view is declared once: its keys, its schema and what it forbids come from one typed dict."""

import pytest
from pydantic import TypeAdapter, ValidationError

from holdfast.insight.views.view import FORBIDS_OTHERS, View, about, example, keys


@FORBIDS_OTHERS
class Parcel(View):
    id: str
    weight: int


@FORBIDS_OTHERS
class Shipment(View):
    name: str
    parcels: list[Parcel]


def test_the_keys_of_a_view_are_listed_in_the_order_of_their_declaration() -> None:
    assert keys(Parcel) == "id, weight"
    assert keys(Shipment) == "name, parcels"


def test_the_keys_of_the_views_inside_a_list_stand_behind_its_key() -> None:
    assert keys(Shipment, parcels=Parcel) == "name, parcels (each: id, weight)"


def test_the_keys_of_another_view_can_be_left_out() -> None:
    class Weighed(Parcel):
        at: str

    assert keys(Weighed, without=Parcel) == "at"


def test_a_key_that_was_not_declared_is_refused() -> None:
    known = TypeAdapter(Shipment)
    shipment = {"name": "s-1", "parcels": [{"id": "p-1", "weight": 3}]}
    assert known.validate_python(shipment) == shipment
    with pytest.raises(ValidationError, match="colour"):
        known.validate_python({**shipment, "colour": "red"})


def test_a_field_says_what_it_is_and_shows_an_example() -> None:
    assert about("grams").description == "grams"
    shown = example(3, "grams")
    assert (shown.examples, shown.description) == ([3], "grams")
