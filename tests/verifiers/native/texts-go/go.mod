module texts

go 1.25

require (
	cosmossdk.io/math v1.5.3
	github.com/bytedance/sonic v1.15.5 // Go 1.26 cannot build the release that the SDK asks for
	github.com/cosmos/ibc-go/v10 v10.7.0
)

replace github.com/syndtr/goleveldb => github.com/syndtr/goleveldb v1.0.1-0.20210819022825-2ae1ddf74ef7
