from proud.cli.main import main

main()
